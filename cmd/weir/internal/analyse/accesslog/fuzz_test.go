package accesslog

import (
	"encoding/json"
	"errors"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

// slowLine is the common format as a regular expression, the reference for the parser.
var slowLine = regexp.MustCompile(`(?s)^([^ ]+) ([^ ]*) (.*?) \[(.{26})\] "((?:[^"\\]|\\.)*)"`)

// otherTime matches a time that is not that of the common format.
var otherTime = regexp.MustCompile(` \[(\d[^][]{18,34})\] "`)

func FuzzCommon(f *testing.F) {
	for _, seed := range []string{nginxLine, apacheLine,
		`a - - [b] c [01/Jan/2020:00:00:00 +0000] "GET / HTTP/1.1" 200 1`,
		`h 1.2.3.4 - - [01/Jan/2020:00:00:00 +0000] "\x16" 400 0`,
		`a - - [31/Dec/2016:23:59:60 +0000] "\\" 1 1`,
		`a - - [25/Mar/2026 14:12:00] "GET / HTTP/1.1" 200 1`,
		`a - x [2026-03-25T14:12:00.5+01:00] "GET / HTTP/1.1" 200 1`,
		`2001:db8::1:40001 - - [25/Mar/2026:14:12:00 +0000] "GET / HTTP/1.1" 200 1`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, line string) {
		line = strings.TrimRight(line, "\r\n \t")
		if line == "" || line[0] == '{' || line[0] == '#' || !ascii(line) || isLogfmt([]byte(line)) {
			return
		}
		var p Parser
		var e Entry
		err := p.Parse([]byte(line), &e)
		if head, _, _ := strings.Cut(line, "["); strings.Contains(head, "  ") {
			return // Jetty pads
		}
		if err == ErrCaller || err == ErrList || p.unwrap([]byte(line)) != nil {
			return // TestNeverAnotherCaller says when
		}
		m := slowLine.FindStringSubmatch(line)
		for _, o := range otherTime.FindAllStringSubmatch(line, -1) {
			common := len(o[1]) == stampLen && o[1][11] == ':' && o[1][20] == ' '
			if _, _, ok := new(clock).read([]byte(o[1])); ok && !common {
				return // FuzzDateTime says which times there are
			}
		}
		if m == nil {
			if err == nil {
				t.Fatalf("parsed a line that is not in the format: %q", line)
			}
			return
		}
		if isList(strings.Trim(m[2][strings.LastIndexByte(m[2], '=')+1:], `"'(),;`)) ||
			strings.HasSuffix(m[1], ",") {
			return // a virtual host, or several addresses
		}
		when, timeErr := time.Parse("02/Jan/2006:15:04:05 -0700", m[4])
		plain := timeErr == nil && when.Format("02/Jan/2006:15:04:05 -0700") == m[4] &&
			when.Year() >= minYear && when.Year() <= maxYear
		same := strings.Contains(m[4], ":60 ") || strings.HasSuffix(m[4], "-0000") // forms of other times
		if plain != (err == nil) && !same {
			t.Fatalf("%q: the reference returns %v, the parser %v", line, timeErr, err)
		}
		if err != nil {
			return
		}
		if timeErr == nil && e.Start != when.Unix()*1e9 {
			t.Fatalf("%q: start %d, want %d", line, e.Start, when.Unix()*1e9)
		}
		if want := withoutPort([]byte(m[1])); m[2] == "-" && string(e.IP) != string(want) {
			t.Fatalf("%q: ip %q, want %q", line, e.IP, want)
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

// FuzzDateTime compares a clock with the standard library on the forms that both know.
func FuzzDateTime(f *testing.F) {
	for _, seed := range []string{"2026-03-25T14:12:00Z", "2026/03/25 14:12:00.294",
		"25/Mar/2026 14:12:00 +0100", "25/Mar/2026:14:12:00.29", "2026-03-25 14:12:00,5 -03:30",
		"2026-03-25T14:12:00+24:00", "2026-03-25T14:12:60 GMT"} {
		f.Add(seed)
	}
	var layouts []string
	for _, date := range []string{"2006-01-02", "2006/01/02", "02/Jan/2006"} {
		for _, between := range []string{"T", " ", ":"} {
			for _, zone := range []string{"", "Z07:00", "Z0700", "Z07", " Z07:00", " Z0700", " Z07",
				" UTC", " GMT", "UTC", "GMT"} {
				layouts = append(layouts, date+between+"15:04:05"+zone)
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want time.Time
		err, same := errors.New("no layout"), false
		for _, layout := range layouts {
			if err != nil {
				want, err = time.Parse(layout, text)
				same = err == nil && want.Format(layout) == text
			}
		}
		_, offset := want.Zone()
		same = same && want.Year() >= minYear && want.Year() <= maxYear && max(offset, -offset) < 24*3600
		got, coarse, ok := new(clock).read([]byte(text))
		switch {
		case strings.Contains(text, ":60"): // a leap second
		case err != nil && ok:
			t.Fatalf("%q: the library knows no such time, the clock has %d", text, got)
		case same && !ok: // the library reads other forms too, such as an hour of one digit
			t.Fatalf("%q: the clock does not know %s", text, want)
		case ok && err == nil && (got != want.UnixNano() || coarse == strings.ContainsAny(text, ".,")):
			t.Fatalf("%q: %d, want %d", text, got, want.UnixNano())
		}
	})
}

// FuzzLayout: whatever a format and a line are, an address of a layout is an address, and a format
// of text never panics.
func FuzzLayout(f *testing.F) {
	const stamp = ` [25/Mar/2026:14:12:00 +0000] "GET /a HTTP/1.1"`
	f.Add(`$remote_addr:$remote_port [$time_local] "$request"`, `2001:db8::5:8000`+stamp)
	f.Add(`%h:%{remote}p %t "%r"`, `::ffff:1.2.3.4:80`+stamp)
	f.Add(envoyDefault, `[2026-11-20T09:34:23.250Z] "GET /a?b HTTP/2" 204 - 1 0 2 1 "-" "c" "c" "e" "1.1.1.1:8"`)
	f.Add(`%START_TIME(%s.%3f)% %DOWNSTREAM_REMOTE_ADDRESS%`, `1700000000.250 [2001:db8::1]:443`)
	f.Add(`$http_x_forwarded_for $msec`, `9.9.9.9, [::1]:80 1700000000.250`)
	f.Fuzz(func(t *testing.T, layout, line string) {
		format, err := ParseLayout(layout)
		if err != nil {
			return
		}
		format.Lists = true
		var e Entry
		p := NewParser(format)
		if p.Parse([]byte(line), &e) != nil || len(e.IP) == 0 {
			return
		}
		if _, err := netip.ParseAddr(string(e.IP)); err != nil {
			t.Fatalf("%q: %q: the caller is %q", layout, line, e.IP)
		}
		_, _ = e.Forwarded()
		p.Addresses(func(Field, Address) {})
	})
}
