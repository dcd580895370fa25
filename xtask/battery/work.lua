-- Tables, closures, strings, coroutines and a small interpreter, with a result that never varies.
local seed = 42
local function random(below)
  seed = (seed * 1103515245 + 12345) % 2147483648
  return seed // 65536 % below
end

local words, order = {}, {}
for _ = 1, 120000 do
  local letters = {}
  for i = 1, 2 + random(4) do letters[i] = string.char(97 + random(26)) end
  local word = table.concat(letters)
  if not words[word] then order[#order + 1] = word end
  words[word] = (words[word] or 0) + 1
end
table.sort(order, function(a, b) return words[a] > words[b] or words[a] == words[b] and a < b end)
for i = 1, 10 do print(order[i], words[order[i]]) end

local text = {}
for i = 1, 40000 do text[i] = ('k%d=%s;'):format(i, ('v'):rep(random(40))) end
local pairs_seen, length = 0, 0
for _, value in table.concat(text):gmatch('(k%d+)=(v*);') do pairs_seen, length = pairs_seen + 1, length + #value end
print(pairs_seen, length)

local function tree(depth) return depth == 0 and {} or { tree(depth - 1), tree(depth - 1) } end
local function count(node) return node[1] and 1 + count(node[1]) + count(node[2]) or 1 end
local total = 0
for _ = 1, 24 do total = total + count(tree(13)) end
print('nodes', total)

local sum = 0
for n = 1, 20000 do
  local step = coroutine.wrap(function() for i = 1, 5 do coroutine.yield(i * n) end end)
  for _ = 1, 5 do sum = (sum + step()) % 1000003 end
end
print('coroutines', sum)

local grown = {}
for i = 1, 300000 do grown[#grown + 1] = i .. '' end
print(#table.concat(grown, ','), collectgarbage('count') > 0)
