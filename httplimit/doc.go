// Package httplimit limits the requests to an http.Handler with any [weir.Strategy].
//
//	limiter, err := weir.New(weir.Config{})
//	…
//	guard := httplimit.New(limiter.SlidingWindow().Limit(100, time.Minute), httplimit.Config{
//		Extractor: httplimit.RemoteAddr(),
//	})
//	http.ListenAndServe(":8080", guard(mux))
//
// [New] returns the middleware, a plain func(http.Handler) http.Handler, and [Config] configures
// it. An [Extractor] returns the key of the client that sent a request. Each documents which data
// it trusts: this is the one choice that must be right.
//
// A request passes, in this order, the extractor, the [DenyList], each policy and the handler, as
// far as the first that refuses it. [NewGuard] takes the same Config, for handlers that are no
// http.Handler: it decides, answers and ends a request in three steps.
//
// Package httpclient is the client's side.
package httplimit
