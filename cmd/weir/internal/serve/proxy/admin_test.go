package proxy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/httplimit"
)

// deny sends a change like the page does.
func deny(t testing.TB, s served, method, body string, header ...string) (int, string) {
	t.Helper()
	resp, text := send(t, method, s.back.URL+"/-/deny", strings.NewReader(body),
		append(header, changeHeader, "1")...)
	return resp.StatusCode, text
}

func TestTheDenyListIsChangedAtRunTime(t *testing.T) {
	s := serve(t, config(t, "100/1d"))
	for _, body := range []string{`{"what":"127.0.0.1","confirm":1}`,
		`{"what":"127.0.0.0/8","for":"1h","confirm":1}`, `{"what":"key:127.0.0.1","confirm":1}`,
		`{"prefix":"127.0.0.1","confirm":1}`, `{"id":"` + live.ID("127.0.0.1") + `","confirm":1}`} {
		require.Equal(t, 200, status(t, "GET", s.front.URL))
		code, text := deny(t, s, "POST", body)
		require.Equal(t, http.StatusNoContent, code, text)
		want := 403
		if strings.Contains(body, "for") {
			want = 429 // until the entry ends
		}
		assert.Equal(t, want, status(t, "GET", s.front.URL), body)
		code, text = deny(t, s, "DELETE", body)
		require.Equal(t, http.StatusNoContent, code, text)
		assert.Equal(t, 200, status(t, "GET", s.front.URL), body)
		code, _ = deny(t, s, "DELETE", body)
		assert.Equal(t, http.StatusNotFound, code)
	}
}

// TestWhatWouldStopManyNeedsTheirNumber adds entries while twelve clients come, eight of one range
// and four others. The operator is at 127.0.0.1.
func TestWhatWouldStopManyNeedsTheirNumber(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Trust = loopback
	s := serve(t, cfg)
	for i := range 12 {
		from := fmt.Sprintf("192.0.2.%d", i)
		if i >= 8 {
			from = fmt.Sprintf("2001:db8:%d::1", i)
		}
		require.Equal(t, 200, status(t, "GET", s.front.URL, "X-Forwarded-For", from))
	}
	const quarter = " of the 12 callers of the last minute"
	for _, row := range []struct {
		body    string
		confirm int    // 0: it is added at once
		reason  string // in the error
	}{
		{`{"what":"192.0.2.1"}`, 0, ""},
		{`{"id":"` + live.ID("192.0.2.1") + `"}`, 0, ""},
		{`{"what":"192.0.2.0/31"}`, 0, ""},
		{`{"what":"198.51.100.0/24"}`, 0, ""},
		{`{"what":"192.0.2.0/30"}`, 4, "4" + quarter},
		{`{"what":"192.0.2.0/24","for":"1m"}`, 8, "8" + quarter},
		{`{"prefix":"0.0.0.0/0"}`, 8, "8" + quarter +
			", and more than a quarter of all addresses, and you, at 127.0.0.1"},
		{`{"what":"::/0"}`, 4, "4" + quarter + ", and more than a quarter of all addresses"},
		{`{"what":"::ffff:0:0/96"}`, 8, "8" + quarter},
		{`{"what":"128.0.0.0/1"}`, 8, "8" + quarter},
		{`{"what":"2000::/4"}`, 4, "more than a quarter of all addresses"},
		{`{"what":"64.0.0.0/1"}`, 1, "would stop more than a quarter of all addresses, and you, at 127.0.0.1"},
		{`{"what":"127.0.0.1"}`, 1, "127.0.0.1/32 would stop you, at 127.0.0.1"},
		{`{"what":"key:127.0.0.1"}`, 1, "127.0.0.1 would stop you, at 127.0.0.1"},
	} {
		code, text := deny(t, s, "POST", row.body)
		if row.confirm == 0 {
			assert.Equal(t, http.StatusNoContent, code, "%s: %s", row.body, text)
		} else {
			var d doubt
			assert.Equal(t, http.StatusConflict, code, row.body)
			require.NoError(t, json.Unmarshal([]byte(text), &d), text)
			assert.Contains(t, d.Error, row.reason, row.body)
			assert.Contains(t, d.Error, fmt.Sprintf(`repeat it with "confirm": %d`, d.Confirm))
			assert.Equal(t, row.confirm, d.Confirm, row.body)
			assert.Zero(t, s.denied.Len(), row.body)

			confirmed := func(n int) string {
				return strings.TrimSuffix(row.body, "}") + fmt.Sprintf(`,"confirm":%d}`, n)
			}
			code, _ = deny(t, s, "POST", confirmed((row.confirm-1)/2))
			assert.Equal(t, http.StatusConflict, code, "%s: not that many were confirmed", row.body)
			code, text = deny(t, s, "POST", confirmed(d.Confirm))
			assert.Equal(t, http.StatusNoContent, code, "%s: %s", row.body, text)
		}
		assert.Equal(t, 1, s.denied.Len(), row.body)
		code, text = deny(t, s, "DELETE", row.body)
		assert.Equal(t, http.StatusNoContent, code, "%s: to admit needs no number: %s", row.body, text)
	}

	// Clients without a limit are not stopped, and so need no confirmation.
	cfg.Allow = loopback
	s = serve(t, cfg)
	code, text := deny(t, s, "POST", `{"what":"127.0.0.1"}`)
	assert.Equal(t, http.StatusNoContent, code, text)
}

func TestInvalidChanges(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.MaxDeny = 1
	s := serve(t, cfg)
	for _, body := range []string{
		"", "{", "[]", "{}", `{"what":""}`, `{"what":"a","id":"YQ"}`, `{"prefix":"a"}`, `{"id":"?"}`,
		`{"what":"a","for":"soon"}`,
		`{"what":"a","for":"-1s"}`, `{"what":"a","for":"0s"}`, `{"what":"a","until":1}`,
		`{"what":"192.0.2.1:80"}`, `{"what":"[2001:db8::1]:80"}`, `{"prefix":"192.0.2.1:80"}`,
		`{"what":"300.1.1.1"}`, `{"what":"not an ip/99"}`, `{"what":"10.0.0.0/33"}`, `{"what":"key:"}`,
		`{"what":"a","confirm":"yes"}`, `{"what":"a"}{"what":"b"}`, `{"what":"a"} x`,
		`{"what":"` + strings.Repeat("a", 2000) + `"}`, `{"what":"` + strings.Repeat("a", 20_000) + `"}`,
	} {
		code, _ := deny(t, s, "POST", body)
		assert.Equal(t, http.StatusBadRequest, code, "%.40s", body)
	}
	assert.Zero(t, s.denied.Len())
	code, _ := deny(t, s, "POST", `{"what":"a"}`+"\n")
	assert.Equal(t, http.StatusNoContent, code)
	code, _ = deny(t, s, "POST", `{"what":"b"}`)
	assert.Equal(t, http.StatusInsufficientStorage, code)
}

// A denial is answered with what takes it back, however long the list is.
func TestADenialSaysWhatItReplaced(t *testing.T) {
	s := serve(t, config(t, "100/1d"))
	for i := range 2 * listedShown {
		require.NoError(t, s.denied.Add(httplimit.DenyEntry{Key: fmt.Sprintf("key-%03d", i)}))
	}
	until := time.Now().Add(time.Hour)
	require.NoError(t, s.denied.Add(httplimit.DenyEntry{Key: "192.0.2.9", Until: until}))
	ended := entered{ID: live.ID("192.0.2.9"), Replaced: true, Until: until.UnixMilli()}
	for body, want := range map[string]entered{
		`{"what":"key-300","for":"10m"}`:                {ID: live.ID("key-300"), Replaced: true},
		`{"id":"` + live.ID("key-301") + `"}`:           {ID: live.ID("key-301"), Replaced: true},
		`{"what":"key:192.0.2.9"}`:                      ended,
		`{"what":"192.0.2.9"}`:                          {Prefix: "192.0.2.9/32"},
		`{"prefix":"2001:db8::1:2/112","for":"10m"}`:    {Prefix: "2001:db8::1:0/112"},
		`{"what":"key-` + strings.Repeat("é", 9) + `"}`: {ID: live.ID("key-" + strings.Repeat("é", 9))},
	} {
		resp, text := send(t, "POST", s.back.URL+"/-/deny", strings.NewReader(body), changeHeader, "1")
		require.Equal(t, http.StatusNoContent, resp.StatusCode, text)
		var is entered
		require.NoError(t, json.Unmarshal([]byte(resp.Header.Get(entryHeader)), &is), body)
		assert.Equal(t, want, is, body)
	}
}

// TestForgedRequestsChangeNothing checks that requests which another site's page can make a browser
// send change nothing.
func TestForgedRequestsChangeNothing(t *testing.T) {
	s := serve(t, config(t, "100/1d"))
	body := func() *strings.Reader { return strings.NewReader(`{"what":"127.0.0.1","confirm":1}`) }
	for name, header := range map[string][]string{
		"a form":                   {"Content-Type", "text/plain"},
		"a form of another site":   {"Sec-Fetch-Site", "cross-site"},
		"a script of another site": {changeHeader, "1", "Sec-Fetch-Site", "cross-site"},
		"one of another port":      {changeHeader, "1", "Sec-Fetch-Site", "same-site"},
		"an old browser's":         {changeHeader, "1", "Origin", "http://evil.example"},
		"a sandbox's":              {changeHeader, "1", "Origin", "null"},
		"a name that was rebound": {changeHeader, "1", "Host", "evil.example", "Origin",
			"http://evil.example", "Sec-Fetch-Site", "same-origin"},
		"a name like localhost":            {changeHeader, "1", "Host", "localhost.evil.example"},
		"a name that begins as an address": {changeHeader, "1", "Host", "127.0.0.1.evil.example"},
	} {
		resp, _ := send(t, "POST", s.back.URL+"/-/deny", body(), header...)
		assert.GreaterOrEqual(t, resp.StatusCode, 400, name)
		assert.Less(t, resp.StatusCode, 500, name)
		assert.Empty(t, resp.Header.Get("Access-Control-Allow-Origin"), name)
		assert.Zero(t, s.denied.Len(), name)
	}
	assert.Equal(t, http.StatusMethodNotAllowed,
		status(t, "GET", s.back.URL+"/-/deny", changeHeader, "1"))

	// The page's own request must pass, or the test would also pass if every request failed.
	resp, text := send(t, "POST", s.back.URL+"/-/deny", body(), changeHeader, "1", "Sec-Fetch-Site",
		"same-origin", "Origin", s.back.URL)
	assert.Equal(t, http.StatusNoContent, resp.StatusCode, text)
	assert.Equal(t, 1, s.denied.Len())
}

func TestOtherHostNamesAreRefused(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Admin.Hosts = []string{"weir.internal", "Ops.Example."}
	s := serve(t, cfg)
	for host, want := range map[string]int{
		"127.0.0.1:1": 200, "[::1]:80": 200, "[::1]": 200, "localhost": 200, "localhost:8081": 200,
		"weir.internal:80": 200, "10.0.0.1": 200, "LOCALHOST": 200, "localhost.": 200,
		"ops.example": 200, "OPS.example.:1": 200, "x": 421,
		"evil.example": 421, "evil.example:8081": 421, "localhost.evil.example": 421,
		"weir.internal.evil.example": 421,
	} {
		assert.Equal(t, want, status(t, "GET", s.back.URL+"/-/stats", "Host", host), host)
		assert.Equal(t, 200, status(t, "GET", s.back.URL+"/-/healthz", "Host", host), host)
	}
}

func TestTheTokenIsNeeded(t *testing.T) {
	cfg := config(t, "1/1d")
	cfg.Admin = Admin{Addr: "127.0.0.1:0", Token: "correct horse battery"}
	s := serve(t, cfg)
	for _, path := range []string{"/", "/-/", "/-/stats", "/-/page.js", "/-/nothing"} {
		resp, body := send(t, "GET", s.back.URL+path, nil)
		assert.Equal(t, 401, resp.StatusCode, path)
		assert.NotContains(t, body, "admitted")
		assert.Contains(t, resp.Header.Get("WWW-Authenticate"), "Basic")
	}
	_, body := send(t, "GET", s.back.URL+"/-/stats", nil)
	assert.Contains(t, body, "needs the admin token: give it in $WEIR_ADMIN_TOKEN")
	_, body = send(t, "GET", s.back.URL+"/-/stats", nil, "Authorization", "Bearer x")
	assert.Contains(t, body, "admin token is wrong: give the one that the server was started with")
	for _, wrong := range []string{"Bearer ", "Bearer correct horse batter",
		"Bearer correct horse battery ",
		"Basic x", "correct horse battery"} {
		assert.Equal(t, 401, status(t, "GET", s.back.URL+"/-/stats", "Authorization", wrong+"x"), wrong)
	}
	assert.Equal(t, 200, status(t, "GET", s.back.URL+"/-/stats", "Authorization",
		"Bearer correct horse battery"))
	r := httptest.NewRequest("GET", "http://127.0.0.1/-/stats", nil)
	r.SetBasicAuth("anybody", "correct horse battery")
	w := httptest.NewRecorder()
	s.admin.ServeHTTP(w, r)
	assert.Equal(t, 200, w.Code, "the password of Basic authorization")
	assert.Equal(t, 200, status(t, "GET", s.back.URL+"/-/healthz"), "the health check needs no token")
	code, _ := deny(t, s, "POST", `{"what":"a"}`)
	assert.Equal(t, 401, code)
}

func TestThePageIsLockedDown(t *testing.T) {
	s := serve(t, config(t, "1/1d"))
	for _, path := range []string{"/-/", "/-/page.js", "/-/page.css", "/-/stats", "/-/healthz",
		"/nothing"} {
		resp, _ := send(t, "GET", s.back.URL+path, nil)
		policy := resp.Header.Get("Content-Security-Policy")
		assert.Contains(t, policy, "default-src 'none'", path)
		assert.NotContains(t, policy, "unsafe", path)
		assert.NotContains(t, policy, "http", path)
		assert.Equal(t, "nosniff", resp.Header.Get("X-Content-Type-Options"), path)
		assert.Equal(t, "no-store", resp.Header.Get("Cache-Control"), path)
	}
	assert.Equal(t, 405, status(t, "POST", s.back.URL+"/-/stats"))
}

// TestTheAdminIsNotServedOnTheFront checks that the statistics and the list are served only on the
// admin address.
func TestTheAdminIsNotServedOnTheFront(t *testing.T) {
	cfg := config(t, "100/1d")
	cfg.Upstream = upstreamOf(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write([]byte("upstream " + r.URL.Path))
	})
	s := serve(t, cfg)
	for _, path := range []string{"/-/", "/-/stats", "/-/healthz", "/-/deny"} {
		_, body := send(t, "GET", s.front.URL+path, nil)
		assert.Equal(t, "upstream "+path, body)
	}
}

func TestStats(t *testing.T) {
	cfg := config(t, "daily=2/1d")
	cfg.Deny = []httplimit.DenyEntry{entry(t, "10.0.0.0/8"), entry(t, "\xff<b>")}
	s := serve(t, cfg)
	for range 3 {
		status(t, "GET", s.front.URL)
	}
	s.meter.Tick()
	s.meter.Tick()
	resp, body := send(t, "GET", s.back.URL+"/-/stats", nil)
	require.Equal(t, "application/json", resp.Header.Get("Content-Type"))
	assert.NotContains(t, body, "<b>", "what JSON says can be put into a page by mistake")
	var f figures
	d := json.NewDecoder(strings.NewReader(body))
	d.DisallowUnknownFields()
	require.NoError(t, d.Decode(&f))
	assert.EqualValues(t, 2, f.Requests["admitted"])
	assert.EqualValues(t, 1, f.Requests["denied"])
	assert.Equal(t, live.PerSecond{Admitted: []uint64{2, 0}, Denied: []uint64{1, 0}, Failed: []uint64{0, 0},
		Errors: []uint64{0, 0}}, f.PerSecond)
	assert.Equal(t, []limitShown{{limitTitle{"daily", "2/1d", "sliding window", 2}, "", 3, 1}}, f.Limits)
	assert.Equal(t, 1, f.Table.Buckets)
	assert.EqualValues(t, 1, f.Denials)
	require.Len(t, f.Worst, 1)
	assert.Equal(t, "127.0.0.1", f.Worst[0].Name)
	assert.False(t, f.Worst[0].Listed)
	require.Len(t, f.DenyList, 2)
	assert.Equal(t, cli.Listed{
		Prefix: "10.0.0.0/8", Name: "10.0.0.0/8", Kind: "prefix", By: "command line",
	}, f.DenyList[0])
	assert.Equal(t, `\xff<b>`, f.DenyList[1].Name)
	key, err := live.KeyOf(f.DenyList[1].ID)
	require.NoError(t, err)
	assert.Equal(t, "\xff<b>", key, "a key of any bytes can be taken off the list again")
	assert.Empty(t, f.Deciding)
}

func TestMeterHistory(t *testing.T) {
	s := serve(t, config(t, "5/1d"))
	for range live.History + 3 {
		s.meter.Tick()
	}
	status(t, "GET", s.front.URL)
	s.meter.Tick()
	past := s.meter.Past()
	require.Len(t, past, live.History)
	assert.Equal(t, live.Sums{Admitted: 1}, past[live.History-1])
	assert.Equal(t, live.Sums{}, past[live.History-2])
}

func TestTheBuiltInPage(t *testing.T) {
	s := serve(t, config(t, "5/1d"))
	resp, body := send(t, "GET", s.front.URL+"/any/where", nil)
	assert.Equal(t, "text/plain; charset=utf-8", resp.Header.Get("Content-Type"))
	assert.Contains(t, body, "Admitted")
	resp, body = send(t, "GET", s.front.URL, nil, "Accept", "text/html,*/*")
	assert.Contains(t, body, "<b>5/1d</b>")
	assert.Contains(t, resp.Header.Get("Content-Security-Policy"), "script-src 'sha256-")
	assert.NotContains(t, body, "//", "nothing is loaded from anywhere")

	ruled, _ := rulesConfig(t, ruleText)
	_, body = send(t, "GET", serve(t, ruled).front.URL, nil, "Accept", "text/html")
	assert.Contains(t, body, "It limits by rules.")
}
