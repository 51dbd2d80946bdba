// Package redislimit is the shared half of a hybrid deployment: the strategies of package weir,
// counted in Redis, so that many processes hold one limit together.
//
//	client := redis.NewClient(redislimit.Options("127.0.0.1:6379"))
//	store, err := redislimit.New(client, redislimit.Config{})
//	if err != nil { … }
//	r := &weir.Request{Key: "10.0.0.7", Limit: 100, Duration: time.Minute}
//	res, err := store.SlidingWindow().Run(ctx, r)
//
// Any redis.UniversalClient will do: one server, Sentinel, Cluster, Ring; Redis 5 or newer, or
// Valkey. The names, the arithmetic and the laws are weir's: on one clock that does not step
// back, the local strategy and its counterpart here give the same Results.
//
// # What a decision is
//
// One Lua script, one key, one round trip. The script decides by the clock of the server (unless
// Config.Now is set), and answers with it, so a Result's ExpiresAt is an instant of this process,
// late or early by at most the round trip, however much the clocks differ. Its key has a time to
// live from its first write on; one that has lost it gets a new one on the next call. Scripts
// travel by their digest; a server that does not know one (NOSCRIPT, so nothing was counted) is
// sent the source, once.
//
// Reset removes the key, and leaves another, which ends in ":reset", for as long as the first would
// have lived. Admit reads it, so that an admission before is not given back after it. Reset,
// and each refund and return, leave one more, which ends in ":back": when that was. Reconcile reads
// it, so that a count that an instance knows of before is not restored after it. A key that is
// removed by hand, evicted, or reset by an earlier release leaves none.
//
// # What an error is
//
// An error means "could not decide", and never an admission. A command is sent once: when its reply
// is lost, the request may have been counted or not; to send it again could count it twice. So the
// error is returned, and the count errs towards denying a little early. [Classify] returns the
// [Class] of an error: [ErrTimeout] is Down, [ErrReply] a Bug.
//
// # Limits of the exactness
//
// Lua counts in doubles, so a limit or a count over 2^53-1 (9 007 199 254 740 991) counts as that.
// In package weir FixedWindow, SlidingWindow and Counter end at 2^48-2 (281 474 976 710 654), and
// everything else at 2^63-1: up to 2^48-2 the Results are equal, and over it those three saturate
// sooner. After a failover, Redis may have lost the last writes, which were acknowledged
// but not yet replicated: up to twice the limit can be admitted in that period. A server that
// evicts keys forgets counts, and every key here has a time to live, so volatile-… evicts them as
// allkeys-… does: use maxmemory-policy noeviction.
//
// Results equal the ones of package weir on a clock that does not step back. After such a step
// those of some strategies still do: TokenBucket stays at the instant of a caller's latest
// admission, until the clock has passed it; Counter and List stay in the caller's period;
// SlidingWindow stays in the latest window of a caller, at its start or at the clock's instant in
// it, where more of the window before counts again. FixedWindow goes by the clock, and its Results
// are equal as long as it steps back by less than a Duration. The others differ: in weir they stay
// at the latest instant that was seen of a caller, also by a denial, and here SlidingLog and Tiers
// stay at the latest admitted hit, and InFlight goes by the clock. Tiers of more than 1024 slices,
// and refunds of hits that more than 1000 others followed, differ too, on the side of denying: see
// Store.Tiers and Strategy.Refund.
//
// # Permissions
//
// A user of Redis' ACL needs, on the keys of Config.Prefix (~weir:*), EVAL, EVALSHA and TIME, PTTL
// and PEXPIRE, DEL for Reset, SCAN for ResetPrefix, GET and PSETEX for the records that Reset and
// refunds leave, and for FixedWindow, Calendar, SlidingWindow, Counter, Tiers and the totals of
// Reconcile HGET, HSET, HINCRBY, HKEYS, HDEL, HMGET and HGETALL; for TokenBucket GET and PSETEX;
// for SlidingLog and List LINDEX, LLEN, LRANGE, LSET, LTRIM and RPUSH; for InFlight ZADD, ZRANGE,
// ZRANGEBYLEX and ZREM. NewSortedSetCounterStrategy needs ZADD, ZCARD, ZCOUNT, ZRANGE,
// ZRANGEBYSCORE, ZREM and ZREMRANGEBYRANK. A missing one is a Misconfigured error.
//
// # Throughput
//
// A decision costs the server about 10 µs, by Admit a third more, and the client a round trip.
// Where the client is the bottleneck, go-redis' AutoPipeline joins the commands of many callers:
// see docs/machines.md of the repository.
package redislimit
