// Package httplimit guards an http.Handler with any [weir.Strategy], and keeps an outgoing client
// under a limit.
//
//	limiter, err := weir.New(weir.Config{})
//	…
//	guard := httplimit.New(limiter.SlidingWindow(), httplimit.Config{
//		Extractor: httplimit.RemoteAddr(),
//		Limit:     100,
//		Duration:  time.Minute,
//	})
//	http.ListenAndServe(":8080", guard(mux))
//
// [New] makes the middleware and [Config] says all there is to choose. An [Extractor] finds out who
// sent a request; the doc comment of each says which data it trusts: the one choice that must be
// right. The middleware is a plain func(http.Handler) http.Handler.
//
// A request passes, in this order: the extractor, the [DenyList], each policy, the handler. It goes
// no further than the first that refuses it.
//
// [Transport] is the client's side: an http.RoundTripper that keeps to a limit of its own and heeds
// those of servers.
package httplimit
