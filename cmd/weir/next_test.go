package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/report"
	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
	"github.com/weirgo/weir/cmd/weir/internal/serve/servercmd"
	"github.com/weirgo/weir/internal/testkit/slow"
)

// logged is a request of the log of TestPrintedCommands.
type logged struct {
	at                    time.Time
	peer, forwarded, user string
	method, target        string
	status                int
}

// line returns the request as JSON with the names of nginx's variables.
func (r logged) line() string {
	return fmt.Sprintf(`{"msec":"%d.%03d","remote_addr":"%s","http_x_forwarded_for":"%s","remote_user":"%s",`+
		`"request_method":"%s","request_uri":"%s","status":"%d"}`, r.at.Unix(), r.at.UnixMilli()%1000,
		r.peer,
		r.forwarded, r.user, r.method, r.target, r.status)
}

// someLogged returns requests with times to the millisecond, in order, such that filters and keys
// make a difference.
func someLogged() (all []logged) {
	r := rand.New(rand.NewPCG(11, 12))
	at := time.Date(2026, 11, 20, 9, 59, 50, 0, time.UTC)
	targets := []string{"/", "/login", "/LOGIN/", "/login/x?y=1", "/login-help", "/favicon.ico",
		"/favicon.ico",
		"/favicon.icox", "/api/a", "/api/b?c", "/apix", "/%6cogin"}
	peers := []string{"10.0.0.1", "10.0.0.2", "203.0.113.1", "2001:db8:0:1::1", "2001:db8:0:2::1"}
	for range 300 {
		at = at.Add(time.Duration(1+r.IntN(4000)) * time.Millisecond)
		q := logged{at: at, peer: peers[min(r.IntN(6), 4)],
			method: []string{"GET", "GET", "POST", "HEAD"}[r.IntN(4)],
			target: targets[r.IntN(len(targets))], status: []int{200, 200, 401, 500}[r.IntN(4)]}
		if strings.HasPrefix(q.peer, "10.") {
			q.forwarded = fmt.Sprintf("192.0.2.%d", r.IntN(4))
		}
		if r.IntN(2) == 0 {
			q.user = "user" + strconv.Itoa(r.IntN(3))
		}
		all = append(all, q)
	}
	return all
}

// replayed is the part of a JSON report that tests compare.
type replayed struct {
	Requests int
	Rules    []struct {
		Name, Limit   string
		Shadow        bool
		Denied        int
		CallersDenied int `json:"callers_denied"`
		Worst         []struct {
			Caller string
			Denied int
		}
	}
	Suggestions []struct {
		Limit         *uint64
		CallersDenied int `json:"callers_denied"`
	}
	Next []report.Step
}

func replayJSON(t *testing.T, args ...string) (out replayed) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := run(append(args, "-o", "json", "-q"), strings.NewReader(""), &stdout, &stderr)
	require.Equal(t, cli.ExitOK, code, "%q: %s", args, stderr.String())
	require.NoError(t, json.Unmarshal(stdout.Bytes(), &out))
	return out
}

// words splits a command of the report as a shell would.
func words(command string) (all []string) {
	for _, w := range regexp.MustCompile(`(?:'[^']*'|\\'|[^\s'])+`).FindAllString(command, -1) {
		w = strings.ReplaceAll(w, `'\''`, "\x00")
		all = append(all, strings.ReplaceAll(strings.ReplaceAll(w, "'", ""), "\x00", "'"))
	}
	return all
}

// TestPrintedCommands replays a log with each filter and key, runs each command that the report
// prints, the replays on the same log and the proxies with the requests of it, and compares the
// denials.
func TestPrintedCommands(t *testing.T) {
	requests := someLogged()
	var text strings.Builder
	for _, r := range requests {
		text.WriteString(r.line() + "\n")
	}
	file := filepath.Join(t.TempDir(), "a log.json")
	require.NoError(t, os.WriteFile(file, []byte(text.String()), 0o600))
	since, until := requests[60].at, requests[240].at
	always := func(logged) bool { return true }
	known := func(r logged) bool { return r.user != "" }
	between := func(r logged) bool { return !r.at.Before(since) && r.at.Before(until) }
	under := func(prefix string) func(logged) bool {
		return func(r logged) bool {
			u, err := url.ParseRequestURI(r.target)
			require.NoError(t, err)
			p := strings.TrimSuffix(strings.ToLower(u.Path), "/")
			return p == prefix || strings.HasPrefix(p, prefix+"/")
		}
	}
	login, api := under("/login"), under("/api")
	strategies := []string{"fixed", "sliding", "token"}
	for i, row := range []struct {
		flags string
		mine  func(logged) bool // whether the proxy is sent a request: all but those of other times
		keep  func(logged) bool // the requests that are replayed
	}{
		{"", always, always},
		{"--path /login", always, login},
		{"--path /favicon.ico", always, under("/favicon.ico")},
		{"--path /login --path /api/", always, func(r logged) bool { return login(r) || api(r) }},
		{"--method post", always, func(r logged) bool { return r.method == "POST" }},
		{"--method GET --path /api", always, func(r logged) bool { return r.method != "POST" && api(r) }},
		{"--by user --force", known, known},
		{"--by path --path /api", always, api},
		{"--by ip+path --path /api", always, api},
		{"--count-if 401,5xx", always, always},
		{"--count-if 401 --path /login", always, login},
		{"--trust 10.0.0.0/8", always, always},
		{"--trust 10.0.0.1,10.0.0.2 --ipv6-prefix 48 --method HEAD", always,
			func(r logged) bool { return r.method == "HEAD" }},
		{"--since " + since.Format(time.RFC3339Nano) + " --until " + until.Format(time.RFC3339Nano),
			between, between},
		{"--format json --map time=msec,ip=remote_addr,path=request_uri,method=request_method " +
			"--path /login", always, login},
	} {
		t.Run(row.flags, func(t *testing.T) {
			strategies := slices.Concat(strategies[i%3:], strategies[:i%3])[:slow.N(1, 3, 3)]
			args := append([]string{"replay", "--suggest", "--deny-at-most", "30%", "-l", "5/1m", "-l",
				"n=3/1m:log", "-l", "3/10s,6/5m", "-s", strings.Join(strategies, ","), file},
				strings.Fields(row.flags)...)
			if slices.Contains(strategies, "token") {
				args = append(args, "--burst", "2")
			}
			if strings.Contains(row.flags, "--trust") == strings.Contains(row.flags, "--force") {
				args = append(args, "--force")
			}
			checkSteps(t, replayJSON(t, args...), len(strategies), requests, row.mine, row.keep)
		})
	}
	for flags, why := range map[string]string{"--status 401": "status", "--force": ""} {
		steps := replayJSON(t, append([]string{"replay", "-l", "5/1m", "--force", file},
			strings.Fields(flags)...)...).Next
		require.Len(t, steps, 1)
		assert.Equal(t, why == "", steps[0].Command != "", flags)
		assert.Contains(t, steps[0].What, why)
	}
}

// TestPrintedCommandsOfALoad: the proxies of the commands that a report on --overload prints start,
// and have the goal and the number of the report.
func TestPrintedCommandsOfALoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "timed.log")
	require.NoError(t, os.WriteFile(file, []byte(timedLog()), 0o600))
	args := []string{"replay", "--trust", "10.0.0.0/8", "--log-format", `$remote_addr $msec "$request" $status $request_time`,
		file}
	for goal, want := range map[string]time.Duration{"--overload": 40 * time.Millisecond, "--overload=250ms": 250 * time.Millisecond} {
		steps := replayJSON(t, append(args, goal)...).Next
		require.Len(t, steps, 2)
		for i, step := range steps {
			cfg, err := servercmd.ProxyConfig(words(step.Command)[2:])
			require.NoError(t, err, step.Command)
			assert.Equal(t, i == 0, cfg.Overload.On, step.Command)
			if i == 0 {
				assert.Equal(t, want, cfg.Overload.Goal, step.Command)
				assert.Len(t, cfg.Trust, 1)
			} else {
				assert.Positive(t, cfg.MaxInFlight)
			}
			cfg.Listen, cfg.Admin = "127.0.0.1:0", proxy.Admin{}
			p, err := proxy.New(cfg)
			require.NoError(t, err, step.Command)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			assert.NoError(t, p.Run(ended))
		}
	}
}

func checkSteps(
	t *testing.T, r replayed, strategies int, requests []logged, mine, keep func(logged) bool,
) {
	kept := len(slices.DeleteFunc(slices.Clone(requests), func(q logged) bool { return !keep(q) }))
	require.Equal(t, kept, r.Requests, "the filter")
	var seen replayed
	suggested, proxies, denials := 0, 0, 0
	for i, step := range r.Next {
		if i < len(r.Rules) && r.Rules[i].Denied == 0 {
			assert.Contains(t, step.What, "nobody would have been denied by")
			assert.Empty(t, step.Command)
			proxies++
			continue
		}
		require.NotEmpty(t, step.Command, step.What)
		args := words(step.Command)
		switch {
		case args[1] == "replay":
			seen = replayJSON(t, append(args[1:], "--force")...)
			assert.Equal(t, r.Requests, seen.Requests, step.Command)
			for _, rule := range seen.Rules {
				for suggested < len(r.Suggestions) && r.Suggestions[suggested].Limit == nil {
					suggested++
				}
				assert.Equal(t, r.Suggestions[suggested].CallersDenied, rule.CallersDenied, step.Command)
				suggested++
			}
			continue
		case i < len(r.Rules):
			assert.Equal(t, r.Rules[i].Denied, deniedBy(t, args, requests, mine), step.Command)
			denials += r.Rules[i].Denied
		default:
			limit := args[slices.IndexFunc(args, func(w string) bool {
				return w == "--limit" || w == "--route"
			})+1]
			limit = limit[strings.LastIndexByte(limit, '=')+1:]
			limit, _, _ = strings.Cut(limit, ":")
			for _, rule := range seen.Rules {
				if rule.Limit == limit {
					assert.Equal(t, rule.Denied, deniedBy(t, args, requests, mine), step.Command)
				}
			}
		}
		proxies++
	}
	assert.Equal(t, len(r.Rules)+strategies, proxies, "a step for each limit and for each strategy")
	assert.Positive(t, denials)
}

// deniedBy runs the command of a proxy on the clock of the log, and returns how many of the
// requests it denies.
func deniedBy(t *testing.T, args []string, requests []logged, mine func(logged) bool) (denied int) {
	t.Helper()
	upstream := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		status, err := strconv.Atoi(r.Header.Get("X-Status"))
		assert.NoError(t, err)
		w.WriteHeader(status)
	}))
	defer upstream.Close()
	cfg, err := servercmd.ProxyConfig(args[2:])
	require.NoError(t, err, args)
	cfg.Upstream, err = url.Parse(upstream.URL)
	require.NoError(t, err)
	now := requests[0].at
	cfg.Listen, cfg.Admin, cfg.Access, cfg.Log = "127.0.0.1:0", proxy.Admin{}, nil, nil
	cfg.Table.Now = func() time.Time { return now }
	p, err := proxy.New(cfg)
	require.NoError(t, err)
	defer func() {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		assert.NoError(t, p.Run(ended))
	}()
	for _, q := range requests {
		if !mine(q) {
			continue
		}
		now = q.at
		r := httptest.NewRequestWithContext(t.Context(), q.method, q.target, nil)
		r.RemoteAddr = net.JoinHostPort(q.peer, "1234")
		r.Header.Set("X-Status", strconv.Itoa(q.status))
		if q.forwarded != "" {
			r.Header.Set("X-Forwarded-For", q.forwarded)
		}
		if q.user != "" {
			r.SetBasicAuth(q.user, "x")
		}
		w := httptest.NewRecorder()
		p.Handler().ServeHTTP(w, r)
		if w.Code == http.StatusTooManyRequests {
			denied++
		} else {
			require.Equal(t, q.status, w.Code)
		}
	}
	return denied
}
