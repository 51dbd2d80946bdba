package accesslog

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"
)

// slowLine is the common format as a regular expression, the reference for the parser.
var slowLine = regexp.MustCompile(`(?s)^([^ ]+) ([^ ]*) (.*?) \[(.{26})\] "((?:[^"\\]|\\.)*)"`)

func FuzzCommon(f *testing.F) {
	for _, seed := range []string{nginxLine, apacheLine,
		`a - - [b] c [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1`,
		`h 1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "\x16" 400 0`,
		`a - - [31/Dec/2016:23:59:60 +0000] "\\" 1 1`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.TrimRight(line, "\r\n \t")
		if line == "" || line[0] == '{' || !ascii(line) {
			return
		}
		var p Parser
		var e Entry
		err := p.Parse([]byte(line), &e)
		if err == ErrCaller || err == ErrList || p.unwrap([]byte(line)) != nil {
			return // TestNeverAnotherCaller says when
		}
		m := slowLine.FindStringSubmatch(line)
		if m == nil {
			if err == nil {
				t.Fatalf("parsed a line that is not in the format: %q", line)
			}
			return
		}
		if isList(strings.Trim(m[2][strings.LastIndexByte(m[2], '=')+1:], `"'(),;`)) {
			return // a virtual host, or two addresses
		}
		when, timeErr := time.Parse("02/Jan/2006:15:04:05 -0700", m[4])
		plain := timeErr == nil && when.Format("02/Jan/2006:15:04:05 -0700") == m[4] &&
			when.Year() >= minYear && when.Year() <= maxYear
		if plain != (err == nil) && !strings.Contains(m[4], ":60 ") {
			t.Fatalf("%q: the reference returns %v, the parser %v", line, timeErr, err)
		}
		if err != nil {
			return
		}
		if timeErr == nil && e.Start != when.Unix()*1e9 {
			t.Fatalf("%q: start %d, want %d", line, e.Start, when.Unix()*1e9)
		}
		if m[2] == "-" && string(e.IP) != m[1] {
			t.Fatalf("%q: ip %q, want %q", line, e.IP, m[1])
		}
		if m[2] == "-" && m[3] != "-" && m[3] != `""` && string(e.User) != m[3] {
			t.Fatalf("%q: user %q, want %q", line, e.User, m[3])
		}
		if f := strings.SplitN(m[5], " ", 3); len(f) > 1 && !strings.Contains(f[1], "://") {
			if want, _, _ := strings.Cut(f[1], "?"); string(e.Path) != want {
				t.Fatalf("%q: path %q, want %q", line, e.Path, want)
			}
		}
	})
}

func FuzzCaddy(f *testing.F) {
	for _, seed := range []string{caddyLine,
		`{"ts":1,"request":{"remote_ip":"a","uri":"\u002f"},"a":[1,-0.5e+3,null,true,{}]}`,
		`{"ts":"2024-05-01T12:00:00Z","duration":"1s","request":{"remote_addr":"a:1"}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if line == "" || line[0] != '{' {
			return
		}
		var p Parser
		var e Entry
		if p.Parse([]byte(line), &e) != nil {
			return
		}
		var ref struct {
			UserID  *string `json:"user_id"`
			Request struct {
				RemoteIP *string `json:"remote_ip"`
				ClientIP *string `json:"client_ip"`
			}
		}
		if !json.Valid([]byte(line)) {
			t.Fatalf("parsed invalid JSON: %q", line)
		}
		if len(e.IP) == 0 {
			t.Fatalf("no address: %q", line)
		}
		// encoding/json ignores the case of keys and repairs invalid UTF-8; the parser does
		// neither.
		if strings.ContainsRune(line, '\\') || !ascii(line) || foldedKeys(line) ||
			json.Unmarshal([]byte(line), &ref) != nil {
			return
		}
		if u := ref.UserID; u != nil && *u != string(e.User) {
			t.Fatalf("%q: user %q, want %q", line, e.User, *u)
		}
		if ip := ref.Request.ClientIP; ip != nil && *ip != "" && *ip != string(e.IP) {
			t.Fatalf("%q: ip %q, want %q", line, e.IP, *ip)
		}
	})
}

// foldedKeys reports whether a line has upper-case letters, null or a repeated key, for which the
// two parsers may differ.
func foldedKeys(line string) bool {
	low := strings.ToLower(line)
	return low != line || strings.Contains(line, "null") || strings.Count(low, `"request"`) > 1
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// FuzzParse parses two lines with one Parser: the first line must not change the result of the
// second.
func FuzzParse(f *testing.F) {
	f.Add(nginxLine, apacheLine)
	f.Add(caddyLine, nginxLine)
	f.Add(`{"ts":1,"user_id":"\n","request":{"remote_ip":"a"}}`,
		`{"ts":1,"user_id":"\t\t","request":{"remote_ip":"a"}}`)
	f.Fuzz(func(t *testing.T, first, second string) {
		var used, fresh Parser
		var a, b Entry
		if strings.Contains(first, "#Fields:") {
			return // it describes the second
		}
		_ = used.Parse([]byte(first), &a)
		errA, errB := used.Parse([]byte(second), &a), fresh.Parse([]byte(second), &b)
		if errA != errB {
			t.Fatalf("after %q, %q fails with %v, else with %v", first, second, errA, errB)
		}
		if errA == nil && (a.Start != b.Start || string(a.IP) != string(b.IP) ||
			string(a.User) != string(b.User) || string(a.Path) != string(b.Path)) {
			t.Fatalf("after %q, %q is read as %+v, else as %+v", first, second, a, b)
		}
	})
}
