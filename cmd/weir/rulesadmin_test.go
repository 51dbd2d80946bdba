package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
)

// "weir rules reset --all" prints its progress apart from the outcome, and fails if the server does
// or ends early.
func TestResetAllPrintsItsProgress(t *testing.T) {
	for answer, want := range map[string]struct {
		code        int
		out, errors string
	}{
		`{"seen":1000,"reset":3}` + "\n" + `{"seen":2000,"reset":7,"done":true}`: {cli.ExitOK,
			"7 counters reset\n", "1000 counters looked at, 3 reset\n"},
		`{"seen":1000,"reset":3,"error":"down\u001b"}`: {1, "", `3 counters reset, and then: down\x1b`},
		`{"seen":1000,"reset":3}`:                      {1, "", "ended the reset early"},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			assert.Equal(t, "DELETE /-/callers d k=v",
				fmt.Sprint(r.Method, " ", r.URL.Path, " ", r.FormValue("domain"),
					" ", r.FormValue("descriptor")))
			_, _ = fmt.Fprintln(w, answer)
		}))
		defer server.Close()
		var out, errors strings.Builder
		code := run([]string{"rules", "reset", "--admin", server.URL, "--domain", "d", "-d", "k=v",
			"--all"}, nil, &out,
			&errors)
		assert.Equal(t, want.code, code)
		assert.Equal(t, want.out, out.String())
		assert.Contains(t, errors.String(), want.errors)
	}
}
