package caddylimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/docblocks"
	"github.com/weirgo/weir/redislimit/redistest"
)

// The configurations of these tests are in the docs.
func TestDocsShowTheseTests(t *testing.T) {
	docblocks.Check(t, "../../docs/http.md", "## Caddy", "frameworks_test.go",
		"cmd/caddy/main.go")
	docblocks.Check(t, "../../docs/proxy.md", "### The same in Caddy", "frameworks_test.go")
}

// admitted makes sure that a limit of 100 admits so many requests of a client, and denies the next
// one, whose answer it returns.
func admitted(t *testing.T, url, client string) (*http.Response, string) {
	t.Helper()
	for range 100 {
		resp, _ := get(t, url, client)
		require.Equal(t, http.StatusOK, resp.StatusCode)
	}
	resp, text := get(t, url, client)
	require.Equal(t, http.StatusTooManyRequests, resp.StatusCode)
	assert.NotEmpty(t, resp.Header.Get("Retry-After"))
	return resp, text
}

func TestPerUser(t *testing.T) {
	atQuarter(t)
	// The password of both is "hiccup".
	url, _ := run(t, `
		route {
			basic_auth {
				alice $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
				bob   $2a$14$Zkx19XLiW6VYouLHR5NmfOFU0z2GTNmpkT/5qqR7hx4IjWJPDhjvG
			}
			weir 3/1m {
				key {http.auth.user.id}
			}
			respond hello
		}
		`)
	for _, step := range []struct {
		user string
		want int
	}{
		{"alice", 200}, {"alice", 200}, {"alice", 200}, {"alice", 429}, {"bob", 200}, {"", 401},
	} {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		req.SetBasicAuth(step.user, "hiccup")
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, step.want, resp.StatusCode, step.user)
	}
}

func TestOwnDenialBody(t *testing.T) {
	atQuarter(t)
	url, _ := run(t, `
		weir 100/1m
		respond hello
		handle_errors 429 {
			header Content-Type application/json
			respond "{\"error\": \"too many requests\", \"limit\": \"{http.weir.policy}\"}"
		}
		`)
	resp, text := admitted(t, url, alice)
	assert.JSONEq(t, `{"error": "too many requests", "limit": "1m"}`, text)
	assert.Equal(t, "application/json", resp.Header.Get("Content-Type"))
}

func TestStreams(t *testing.T) {
	atQuarter(t)
	leave := make(chan bool)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = w.Write([]byte("data: hello\n\n"))
		_ = http.NewResponseController(w).Flush()
		<-leave
	}))
	defer upstream.Close()
	site := `
		weir 100/1m {
			max_in_flight_per_client 2
		}
		reverse_proxy localhost:9000
		`
	url, _ := run(t, strings.Replace(site, "localhost:9000", upstream.URL, 1))
	open := func() *http.Response {
		req, err := http.NewRequest(http.MethodGet, url, http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-Forwarded-For", alice)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		return resp
	}
	first, second, third := open(), open(), open()
	close(leave)
	assert.Equal(t, []int{200, 200, 429}, []int{first.StatusCode, second.StatusCode, third.StatusCode})
	for _, resp := range []*http.Response{first, second, third} {
		assert.NoError(t, resp.Body.Close())
	}
}

func TestSeveralLimitsAndRedis(t *testing.T) {
	_, err := adapt(t, `
example.com {
	weir /login* login=5/1m {
		count_if 401                   # failed logins only
	}
	weir {
		limit    100/1m 2000/1h        # all of them must admit a request
		key      ip                    # the default; all: one budget; or placeholders
		strategy sliding               # fixed, sliding, log, token
		deny     203.0.113.0/24
		redis    redis://10.0.0.3:6379 {
			instances 3                # without Redis, each Caddy has a third
		}
	}
	reverse_proxy localhost:9000
}
`)
	assert.NoError(t, err)
}

// What weir proxy does by flags, Caddy does by this.
func TestSameAsTheProxy(t *testing.T) {
	atQuarter(t)
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer upstream.Close()
	const file = `
{
	servers {
		trusted_proxies static 10.0.0.0/8
		trusted_proxies_strict
	}
}

http://:8080 {
	@login {
		method POST
		path /login
	}
	weir @login login=5/1m
	@others not {
		method POST
		path /login
	}
	weir @others 100/1m {
		deny          198.51.100.0/24
		max_in_flight 1000
	}
	reverse_proxy 127.0.0.1:9000
}
`
	addr := fmt.Sprintf("127.0.0.1:%d", redistest.FreePort(t))
	config, _, err := caddyconfig.GetAdapter(
		"caddyfile",
	).Adapt([]byte("{\nadmin off\npersist_config off\n"+
		"storage file_system "+t.TempDir()+strings.NewReplacer(
		"10.0.0.0/8", "127.0.0.1/32", ":8080", addr, "127.0.0.1:9000", upstream.Listener.Addr().String(),
		"{\n\tservers", "\tservers").Replace(file)), nil)
	require.NoError(t, err)
	require.NoError(t, caddy.Load(config, true))
	defer func() { assert.NoError(t, caddy.Stop()) }()
	url := "http://" + addr
	admitted(t, url, alice)
	resp, _ := get(t, url, "198.51.100.7, "+alice)
	assert.Equal(t, http.StatusTooManyRequests, resp.StatusCode, "an address that the client claims")
	resp, _ = get(t, url, "203.0.114.8")
	assert.Equal(t, http.StatusOK, resp.StatusCode, "another client")
	for _, want := range []int{401, 401, 401, 401, 401, 429} {
		req, err := http.NewRequest(http.MethodPost, url+"/login", http.NoBody)
		require.NoError(t, err)
		req.Header.Set("X-Forwarded-For", alice)
		resp, err := http.DefaultClient.Do(req)
		require.NoError(t, err)
		assert.NoError(t, resp.Body.Close())
		assert.Equal(t, want, resp.StatusCode, "a limit of its own")
	}
}
