package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

// A key is named by one argument as it is, and by several as the key that has them for parts.
func TestWhyNamesAKey(t *testing.T) {
	asked := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.FormValue("key")
		_, _ = w.Write([]byte(`{"name": "it", "says": "passes"}`))
	}))
	defer server.Close()
	for want, args := range map[string][]string{
		"192.0.2.7":                 {"192.0.2.7"},
		"key:9:192.0.2.76:/login":   {"192.0.2.7", "/login"},
		"key:3:ann0:11:2001:db8::1": {"ann", "", "2001:db8::1"},
	} {
		var out, errors strings.Builder
		code := run(append([]string{"why", "--admin", server.URL}, args...), nil, &out, &errors)
		assert.Zero(t, code, errors.String())
		assert.True(t, strings.HasPrefix(out.String(), "it passes\n"), out.String())
		assert.Equal(t, want, asked)
	}
	for _, args := range [][]string{{"why"}, {"why", "ann", "/a", "-d", "k=v"}} {
		var out, errors strings.Builder
		assert.Equal(t, 2, run(args, nil, &out, &errors))
		assert.Contains(t, errors.String(), "want either a KEY or --descriptor")
	}
}
