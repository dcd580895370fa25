-- Joins, sorts, JSON, full text, triggers, procedures and DDL, with results that never vary.
CREATE DATABASE work;
USE work;
SET SESSION sql_mode = 'STRICT_ALL_TABLES';
CREATE TABLE item (
    id INT PRIMARY KEY, name VARCHAR(80), price DECIMAL(10, 2), tag INT, doc JSON, body TEXT,
    KEY (name), KEY (tag, price), FULLTEXT (body)
) ENGINE = InnoDB;
INSERT INTO item
SELECT seq, CONCAT('name-', MD5(seq)), (seq * 7919 % 100000) / 100, seq * 31 % 97,
       JSON_OBJECT('id', seq, 'list', JSON_ARRAY(seq % 3, seq % 5, CONCAT('x', seq))),
       CONCAT(REPEAT(CONCAT('word', seq % 50, ' '), seq % 40), 'end', seq % 7)
FROM seq_1_to_20000;
CREATE TABLE tag (id INT PRIMARY KEY, label VARCHAR(40)) ENGINE = InnoDB;
INSERT INTO tag SELECT DISTINCT tag, CONCAT('label ', tag) FROM item;
SELECT t.label, COUNT(*), SUM(i.price), MAX(i.name) FROM item i JOIN tag t ON t.id = i.tag GROUP BY t.id ORDER BY t.id;
SET SESSION group_concat_max_len = 1000000;
SELECT MD5(GROUP_CONCAT(name ORDER BY name SEPARATOR '|')) FROM item;
SELECT id, name FROM item ORDER BY MD5(CONCAT(id, name)) LIMIT 200;
SELECT COUNT(*), SUM(id) FROM item WHERE MATCH (body) AGAINST ('word7 -word8' IN BOOLEAN MODE);
SELECT SUM(JSON_EXTRACT(doc, '$.list[1]')), MAX(JSON_UNQUOTE(JSON_EXTRACT(doc, '$.list[2]'))) FROM item;
SELECT id, SUM(price) OVER (PARTITION BY tag ORDER BY id ROWS 5 PRECEDING) s FROM item ORDER BY id LIMIT 300;
WITH RECURSIVE f (n, a, b) AS (SELECT 1, 0, 1 UNION ALL SELECT n + 1, b, (a + b) % 1000007 FROM f WHERE n < 500)
SELECT SUM(a), MAX(b) FROM f;
CREATE TABLE log (id INT AUTO_INCREMENT PRIMARY KEY, what VARCHAR(100)) ENGINE = InnoDB;
DELIMITER //
CREATE TRIGGER note AFTER UPDATE ON item FOR EACH ROW INSERT INTO log (what) VALUES (CONCAT(OLD.id, ' ', NEW.price))//
CREATE PROCEDURE churn(n INT)
BEGIN
    DECLARE i INT DEFAULT 0;
    WHILE i < n DO
        UPDATE item SET price = price + 1, body = CONCAT(LEFT(body, 100), REPEAT('y', i % 200)) WHERE id = 1 + i * 37 % 20000;
        DELETE FROM item WHERE id = 1 + i * 101 % 20000 AND i % 11 = 0;
        SET i = i + 1;
    END WHILE;
END//
DELIMITER ;
CALL churn(2000);
SELECT COUNT(*), MD5(GROUP_CONCAT(what ORDER BY id)) FROM log;
ALTER TABLE item ADD COLUMN extra VARCHAR(200) DEFAULT 'e', ADD KEY (extra, id), ALGORITHM = COPY;
SELECT COUNT(*), SUM(price), SUM(LENGTH(body)) FROM item;
CHECKSUM TABLE item, tag, log;
CHECK TABLE item EXTENDED;
SELECT a.id, b.id FROM item a JOIN item b ON b.tag = a.tag AND b.price > a.price WHERE a.id < 30 ORDER BY a.id, b.id LIMIT 2000;
EXPLAIN FORMAT = JSON SELECT 1;
