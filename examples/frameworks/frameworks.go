// Package frameworks shows the middleware of httplimit in four web frameworks. It is an example: copy what you need.
//
// What takes a func(http.Handler) http.Handler takes the middleware as it is:
//
//	http.ListenAndServe(":8080", guard(mux))         // net/http
//	router.Use(guard)                                // chi
//	e.Use(echo.WrapMiddleware(guard))                // echo
//	app.Use(adaptor.HTTPMiddleware(guard))           // fiber
//	engine.Use(frameworks.Gin(guard))                // gin, by the adapter below
//
// Three things to know:
//
//   - httplimit.Pattern needs a route that has matched: in chi, use router.With(guard).Get(…) rather than router.Use;
//     echo, gin and fiber do not set http.Request.Pattern at all.
//   - Config.CountIf sees the status that the handler wrote. An echo handler that returns an error has not written one
//     yet when it returns: let it call c.Error(err). In fiber the handler runs when the middleware is done, so that there
//     every status is 200, and CountIf is of no use.
//   - httplimit.IsBypassed takes the context of the http.Request; in fiber, c.RequestCtx().
package frameworks

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Gin makes a net/http middleware a gin one.
func Gin(middleware func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		passed := false
		next := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			passed = true
			c.Request = r // it may carry a value in its context
			c.Next()
			w.WriteHeader(c.Writer.Status()) // for middleware that watches it; gin itself has the status already
		})
		middleware(next).ServeHTTP(c.Writer, c.Request)
		if !passed {
			c.Abort() // or gin would go on to the handler
		}
	}
}
