package proxy

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"net/http"
	"os"
	"strings"
	"sync/atomic"

	"github.com/weirgo/weir/httplimit"
)

//go:embed builtin.html
var builtInText string

var builtInPage = template.Must(template.New("built-in").Parse(builtInText))

// builtIn returns the handler for a proxy without an upstream: for browsers a page that sends
// requests and shows which are admitted and denied, for other clients a line of text. Style and
// script are part of the page, so that loading it is one request of the limit. limit is empty if
// there are rules.
func builtIn(limit string) http.Handler {
	var b bytes.Buffer
	if err := builtInPage.Execute(&b, limit); err != nil {
		panic(err) // cannot happen: the template is constant
	}
	page := b.Bytes()
	policy := "default-src 'none'; connect-src 'self'; img-src data:; " +
		"base-uri 'none'; form-action 'none'; frame-ancestors 'none'" +
		"; style-src " + digest(builtInText, "style") + "; script-src " + digest(builtInText, "script")
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cache-Control", "no-store") // a reload is a request
		h.Set("X-Content-Type-Options", "nosniff")
		if !strings.Contains(r.Header.Get("Accept"), "text/html") {
			h.Set("Content-Type", "text/plain; charset=utf-8")
			_, _ = w.Write([]byte("Admitted. This is weir proxy without an upstream.\n"))
			return
		}
		h.Set("Content-Security-Policy", policy)
		h.Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write(page)
	})
}

// digest returns the Content-Security-Policy source of the page's only element of this name, which
// must not contain template actions.
func digest(page, name string) string {
	_, rest, _ := strings.Cut(page, "<"+name+">")
	inner, _, _ := strings.Cut(rest, "</"+name+">")
	sum := sha256.Sum256([]byte(inner))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

// DeniedPage is the HTML page of a denial, in a file. It is safe for concurrent use.
type DeniedPage struct {
	name string
	text atomic.Pointer[[]byte]
}

// NewDeniedPage reads the page in a file.
func NewDeniedPage(name string) (*DeniedPage, error) {
	d := &DeniedPage{name: name}
	return d, d.reload()
}

func (d *DeniedPage) reload() error {
	text, err := os.ReadFile(d.name)
	if err == nil && len(bytes.TrimSpace(text)) == 0 {
		err = fmt.Errorf("the page %s is empty", d.name)
	}
	if err == nil {
		d.text.Store(&text)
	}
	return err
}

// Respond is the middleware's Respond.
func (d *DeniedPage) Respond(w http.ResponseWriter, _ *http.Request, decision httplimit.Decision) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(decision.Status)
	_, _ = w.Write(*d.text.Load())
}
