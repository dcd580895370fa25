PRAGMA journal_mode = WAL;
PRAGMA cache_size = -8000;
CREATE TABLE item(id INTEGER PRIMARY KEY, name TEXT, price REAL, tag INTEGER, body BLOB);
WITH RECURSIVE n(i, s) AS (
    SELECT 1, 12345 UNION ALL SELECT i + 1, (s * 1103515245 + 12345) % 2147483648 FROM n WHERE i < 60000
)
INSERT INTO item SELECT i, printf('name-%08x', s), (s % 100000) / 100.0, s % 97, zeroblob(s % 400) FROM n;
CREATE INDEX item_name ON item(name);
CREATE INDEX item_tag ON item(tag, price);
CREATE TABLE tag(id INTEGER PRIMARY KEY, label TEXT UNIQUE);
INSERT INTO tag SELECT DISTINCT tag, 'label ' || tag FROM item;
SELECT t.label, count(*), round(sum(i.price), 2), max(i.name) FROM item i JOIN tag t ON t.id = i.tag GROUP BY t.id ORDER BY t.id;
UPDATE item SET body = body || CAST(printf('%.*c', id % 700, 'x') AS BLOB) WHERE id % 3 = 0;
DELETE FROM item WHERE id % 7 = 0;
SELECT count(*), sum(length(body)), min(name), max(name) FROM item;
SELECT group_concat(name, '|') FROM (SELECT name FROM item WHERE tag < 5 ORDER BY name LIMIT 2000);
SELECT a.id, b.id FROM item a JOIN item b ON b.tag = a.tag AND b.price > a.price WHERE a.id < 40 ORDER BY a.id, b.id LIMIT 3000;
SELECT json_group_array(json_object('id', id, 'price', price)) FROM (SELECT id, price FROM item ORDER BY price DESC, id LIMIT 1000);
SELECT id, sum(price) OVER (PARTITION BY tag ORDER BY id ROWS 5 PRECEDING) FROM item WHERE id < 3000 ORDER BY id;
REINDEX;
VACUUM;
PRAGMA integrity_check;
SELECT hex(substr(body, 1, 8)), count(*) FROM item GROUP BY 1 ORDER BY 1;
