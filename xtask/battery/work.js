// JSON, maps, buffers, zlib, crypto, worker threads and child processes, with a result that never varies.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const crypto = require('crypto');
const zlib = require('zlib');
const { execFileSync } = require('child_process');
const hash = (data) => crypto.createHash('sha256').update(data).digest('hex');

function fill(seed, n) {
  const out = [];
  for (let i = 0; i < n; i++) {
    seed = (Math.imul(seed, 1103515245) + 12345) >>> 0;
    out.push({ id: i, name: 'n'.repeat(seed >>> 27), nested: { values: Array.from({ length: seed % 9 }, (_, k) => k * seed) } });
  }
  return out;
}

if (!isMainThread) {
  const buffers = [];
  for (let i = 0; i < 3000; i++) buffers.push(Buffer.alloc((i * 31) % 7000, workerData));
  parentPort.postMessage(hash(Buffer.concat(buffers)));
} else {
  (async () => {
    const text = JSON.stringify(fill(1, 30000));
    console.log('json', text.length, hash(text), hash(JSON.stringify(JSON.parse(text))));
    console.log('zlib', hash(zlib.inflateSync(zlib.deflateSync(text))), hash(zlib.brotliDecompressSync(zlib.brotliCompressSync(text.slice(0, 200000)))));
    const map = new Map();
    for (let i = 0; i < 200000; i++) map.set('key' + (i % 5000), (map.get('key' + (i % 5000)) || '').slice(-20) + i);
    console.log('map', map.size, hash([...map.entries()].join()));
    const results = await Promise.all([1, 2, 3, 4].map((k) => new Promise((resolve, reject) => {
      const worker = new Worker(__filename, { workerData: k });
      worker.once('message', resolve);
      worker.once('error', reject);
    })));
    console.log('workers', results.join('\n'));
    for (let i = 0; i < 10; i++) execFileSync('/bin/true');
    console.log('child', execFileSync('/bin/echo', ['x'.repeat(50000)]).length);
    const keys = await Promise.all([1, 2, 3, 4].map((k) => new Promise((resolve, reject) =>
      crypto.scrypt('pw' + k, 'salt', 64, (err, key) => (err ? reject(err) : resolve(key.toString('hex')))))));
    console.log('scrypt', keys.join('\n'));
  })();
}
