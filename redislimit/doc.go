// Package redislimit is the shared half of a hybrid deployment: the strategies of package weir, counted in Redis, so that
// many processes hold one limit together.
//
//	client := redis.NewClient(redislimit.Options("127.0.0.1:6379"))
//	store, err := redislimit.New(client, redislimit.Config{})
//	if err != nil { … }
//	res, err := store.SlidingWindow().Run(ctx, &weir.Request{Key: "10.0.0.7", Limit: 100, Duration: time.Minute})
//
// Any redis.UniversalClient will do: one server, Sentinel, Cluster, Ring; Redis 5 or newer, or Valkey. The names, the
// arithmetic and the laws are those of weir: on one clock, the local strategy and its counterpart here give the same
// Results.
//
// # What a decision is
//
// One Lua script, one key, one round trip. The script reads the clock of the server (unless Config.Now is set), so the
// clocks of the processes do not matter. Its key has a time to live from its first write on, and a key that has lost it
// gets a new one on the next call. A Result's ExpiresAt is an instant of the clock that decided. Scripts travel by their
// digest; a server that does not know one (NOSCRIPT, so nothing was counted) is sent the source, once.
//
// # What an error is
//
// An error means "could not decide", and never an admission. A command is sent once: when its reply is lost, the request
// may have been counted, and nobody knows; asking again would count it twice. So the error is returned, and the caller
// errs towards denying a little early. [Classify] tells what kind of error it is.
//
// # Limits of the exactness
//
// Lua counts in doubles, so a limit or a count over 2^53-1 (9 007 199 254 740 991) counts as that. After a failover, Redis
// may have lost the last writes, which were acknowledged but not yet replicated: up to twice the limit can be admitted in
// that period. A server that evicts keys (maxmemory-policy allkeys-…) forgets counts: use noeviction.
package redislimit
