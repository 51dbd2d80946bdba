package httplimit

import (
	"net/http"
	"slices"
)

// CORS makes the answers that the middleware writes readable to scripts of other origins, and
// leaves the handler's answers alone. A CORS middleware that runs before this one takes precedence.
type CORS struct {
	// Origins are the origins allowed to read answers, as in "https://app.example.com"; "*" allows
	// all.
	Origins []string

	// Credentials also allows them on requests sent with cookies; not with "*".
	Credentials bool
}

// allow lets scripts of an allowed origin read the exposed fields of the answer, unless a CORS
// middleware has set its fields already.
func (c *CORS) allow(h http.Header, r *http.Request, exposed string) {
	if len(c.Origins) == 0 || h.Get("Access-Control-Allow-Origin") != "" {
		return
	}
	h.Add("Vary", "Origin")
	origin := r.Header.Get("Origin")
	switch {
	case origin == "":
		return
	case slices.Contains(c.Origins, "*"):
		h.Set("Access-Control-Allow-Origin", "*")
	case slices.Contains(c.Origins, origin):
		h.Set("Access-Control-Allow-Origin", origin)
		if c.Credentials {
			h.Set("Access-Control-Allow-Credentials", "true")
		}
	default:
		return
	}
	h.Set("Access-Control-Expose-Headers", exposed)
}
