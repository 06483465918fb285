-- Keeps the reply of a numbered call, so that its repeat changes nothing.
local function answer(key, number, reply, ms)
  redis.call('SET', key, string.format('%.0f ', number) .. cmsgpack.pack(reply), 'PX', ms)
  return reply
end
