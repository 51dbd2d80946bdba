package accesslog

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// layout is the format of a line of text: fields with text between them.
type layout struct {
	schema
	lead   []byte // the text before the first field
	parts  []part
	cut    bool    // the last field may lack its end
	names  string  // of the fields of a W3C log
	tabbed *layout // of a W3C log, for lines with tabs between the fields
}

type part struct {
	kind   int
	until  []byte
	rank   int    // among the parts of a kind; the lowest wins
	name   string // of the field of a W3C log
	list   bool   // $proxy_add_x_forwarded_for, which ends in $remote_addr
	ported bool   // an address that a port always follows
	hosted bool   // a path that a host may precede
	last   bool   // a duration that is the last of several, with slashes between them
}

// of returns the layout of a line of a W3C log.
func (l *layout) of(line []byte) *layout {
	if bytes.IndexByte(line, '\t') >= 0 {
		return l.tabbed
	}
	return l
}

// variables are the kinds of nginx's variables, and of others whose names begin with an underscore:
// the time of arrival, and HAProxy's timers. The time of a request that nginx logs is that of its
// end.
var variables = map[string]int{
	"remote_addr": kindIP, "remote_user": kindUser, "time_local": kindTime, "time_iso8601": kindTime,
	"msec": kindTime, "request_time": kindDuration, "request": kindRequest, "uri": kindPath,
	"request_method": kindMethod, "request_uri": kindPath, "status": kindStatus,
	"http_referer": kindReferer, "http_user_agent": kindAgent,
	"proxy_add_x_forwarded_for": kindIP, "realip_remote_addr": kindIP,
	"_start": kindStart, "_timers": kindDuration,
}

// partOf returns the part of a variable. $realip_remote_addr is the peer of a client that
// $remote_addr has.
func partOf(variable string) part {
	kind := variables[variable]
	rank := 1
	if kind == kindNone {
		rank = forwardedRank(variable)
		if rank > 0 {
			return part{kind: kindForwarded, rank: rank}
		}
	}
	if variable == "realip_remote_addr" {
		rank = 2
	}
	return part{kind: kind, rank: rank, list: variable == "proxy_add_x_forwarded_for",
		last: variable == "_timers"}
}

// apache are nginx's variables for the directives of Apache, which logs the time of arrival.
var apache = map[string]string{
	"h": "$remote_addr", "a": "$remote_addr", "{c}a": "$realip_remote_addr",
	"{c}h": "$realip_remote_addr", "u": "$remote_user",
	"t": "[$_start]", "{sec}t": "$_start", "{msec}t": "$_start", "{usec}t": "$_start",
	"r": "$request",
	"m": "$request_method", "U": "$uri", "q": "$args", "s": "$status", "%": "%",
}

// apacheDurations are Apache's directives of how long a request took, the finest first: where a
// format has several, that is read.
var apacheDurations = []struct {
	directive string
	unit      time.Duration
}{{"{us}T", time.Microsecond}, {"D", time.Microsecond}, {"{ms}T", time.Millisecond},
	{"{s}T", time.Second}, {"T", time.Second}}

// headerVariable returns nginx's variable of a request header.
func headerVariable(name string) string {
	return "$http_" + strings.ReplaceAll(strings.ToLower(name), "-", "_")
}

var (
	apacheDirective = regexp.MustCompile(`%[!,0-9]*[<>]?[!,0-9]*` +
		`((?:\{[^}]*\})?(?:\^t[io]|[a-zA-Z]|%))`)
	nginxVariable    = regexp.MustCompile(`\$(?:\{[a-z0-9_]+\}|[a-z0-9_]+)`)
	configured       = regexp.MustCompile(`^\s*(?i:log_format\s+\S+|logformat)\s+(?:escape=\w+\s+)?`)
	configuredName   = regexp.MustCompile(`(["'])\s+\w+\s*$`)
	configuredEscape = strings.NewReplacer(`\"`, `"`, `\'`, `'`, `\t`, "\t", `\\`, `\`)
	configuredText   = regexp.MustCompile(`'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)"`)
)

// ParseLayout returns the format of lines that nginx writes with the log_format text, Apache with
// the LogFormat text, or Envoy with the format string text. The text may be as in their
// configuration, with its quotes, or without.
func ParseLayout(text string) (Format, error) {
	format := unquoteConfig(text)
	unit := time.Second
	var err error
	switch {
	case envoyOperator.MatchString(format):
		unit = time.Millisecond
		format, err = fromEnvoy(format)
	case !strings.Contains(format, "$"):
		format, unit, err = fromApache(format)
	}
	if err != nil {
		return Format{}, err
	}
	l, err := newLayout(format)
	if err != nil {
		return Format{}, fmt.Errorf("log format %q: %w", text, err)
	}
	l.unit = unit
	return Format{layout: l}, nil
}

// fromApache returns a format of Apache with nginx's variables, and the unit of its duration.
func fromApache(format string) (_ string, unit time.Duration, err error) {
	var names []string
	for _, m := range apacheDirective.FindAllStringSubmatch(format, -1) {
		names = append(names, m[1])
	}
	took := ""
	for _, d := range apacheDurations {
		if slices.Contains(names, d.directive) {
			took, unit = d.directive, d.unit
			break
		}
	}
	format = apacheDirective.ReplaceAllStringFunc(format, func(d string) string {
		name := apacheDirective.FindStringSubmatch(d)[1]
		if name == took {
			return "$request_time"
		}
		if open := strings.IndexByte(name, '}'); open > 0 && name[open+1:] == "i" {
			return headerVariable(name[1:open])
		}
		v, ok := apache[name]
		if !ok && strings.HasSuffix(name, "}t") {
			err = fmt.Errorf("log format: a time as %s cannot be read; log %%t or %%{usec}t", d)
		}
		if !ok {
			return "$_"
		}
		return v
	})
	return format, unit, err
}

// unquoteConfig returns the format of a line of a configuration: log_format NAME 'text' 'text'; or
// LogFormat "text" name. It returns a text without quotes unchanged.
func unquoteConfig(text string) string {
	body := strings.TrimRight(configured.ReplaceAllString(text, ""), "; \t\r\n")
	if body == "" || body[0] != '\'' && (body[0] != '"' || body == text) {
		return body
	}
	body = configuredName.ReplaceAllString(body, "$1")
	var b strings.Builder
	for _, m := range configuredText.FindAllStringSubmatch(body, -1) {
		b.WriteString(configuredEscape.Replace(m[1] + m[2]))
	}
	return b.String()
}

// newLayout compiles a format with nginx's variables.
func newLayout(format string) (*layout, error) {
	l := &layout{schema: schema{unit: time.Second, text: true}}
	at := nginxVariable.FindAllStringIndex(format, -1)
	if len(at) == 0 {
		return nil, fmt.Errorf("it has no variable such as $remote_addr or %%h")
	}
	l.lead = []byte(format[:at[0][0]])
	for i, m := range at {
		one := partOf(strings.Trim(format[m[0]:m[1]], "${}"))
		end := len(format)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		one.until = []byte(format[m[1]:end])
		if n := len(l.parts); n > 0 {
			joined, ok := l.parts[n-1].join(one)
			if !ok {
				return nil, fmt.Errorf("nothing stands between the variables before %q", format[m[0]:m[1]])
			}
			if joined != nil {
				l.parts[n-1] = *joined
				continue
			}
		}
		l.parts = append(l.parts, one)
		l.needs[one.kind] = one.kind == kindIP || one.kind == kindTime || one.kind == kindStart
	}
	return l.complete()
}

// join returns the part of t and of the next variable, or nil if they are two. ok is false if
// nothing separates two that are read.
func (t part) join(next part) (joined *part, ok bool) {
	until := next.until
	switch {
	case t.kind == kindIP && next.kind == kindNone && string(t.until) == ":":
		t.ported = true // $remote_addr:$remote_port or %h:%{remote}p
	case len(t.until) > 0:
		return nil, true
	case next.kind == kindNone && (t.kind == kindPath || t.kind == kindNone):
		// $uri$is_args$args or %U%q
	case next.kind == kindPath && t.kind == kindNone: // $host$request_uri
		t, t.hosted = next, true
	default:
		return nil, false
	}
	t.until = until
	return &t, true
}

// complete returns l if it has all kinds that a request must have. A forwarded address stands in
// for that of the peer if the format has no other; then a request may have none.
func (l *layout) complete() (*layout, error) {
	isPeer := func(p part) bool { return p.kind == kindIP && !p.list }
	for i := range l.parts {
		if p := &l.parts[i]; p.list && slices.ContainsFunc(l.parts, isPeer) {
			p.kind = kindForwarded
		}
	}
	l.standIn = !l.needs[kindIP] &&
		slices.ContainsFunc(l.parts, func(p part) bool { return p.kind == kindForwarded })
	l.date()
	if !l.dated() || !l.needs[kindIP] && !l.standIn {
		return nil, errors.New("it needs a time ($time_local, $msec or %t) and an address " +
			"($remote_addr or %h)")
	}
	return l, nil
}

// read sets the values of a line.
func (l *layout) read(r *reading, line []byte, padded bool) error {
	r.values = [kinds]value{}
	rest, ok := bytes.CutPrefix(line, l.lead)
	before := l.lead
	if !ok {
		return ErrLayout
	}
	for i, part := range l.parts {
		if padded && part.isPadded() && bytes.HasSuffix(before, space) {
			rest = bytes.TrimLeft(rest, " ")
		}
		n, ok := part.length(rest, bytes.HasSuffix(before, []byte{'"'}))
		if !ok && l.cut && i == len(l.parts)-1 {
			n, ok = len(rest), true
		}
		if !ok {
			return ErrLayout
		}
		part.set(r, rest[:n])
		rest, before = rest[min(n+len(part.until), len(rest)):], part.until
	}
	return nil
}

// isPadded reports whether spaces may precede a field. Before an address they may be an empty field
// in front of another address.
func (t *part) isPadded() bool {
	switch t.kind {
	case kindNone, kindDuration, kindUser, kindStatus, kindTime, kindStart:
		return true
	}
	return false
}

// set stores the text of the part.
func (t part) set(r *reading, text []byte) {
	v := value{text: text, str: true, ported: t.ported, rank: t.rank}
	if t.last { // HAProxy writes a plus before it if the response had not ended
		v.text = bytes.TrimPrefix(text[bytes.LastIndexByte(text, '/')+1:], []byte{'+'})
	}
	if t.hosted {
		v.text = text[max(0, bytes.IndexByte(text, '/')):]
	}
	switch t.kind {
	case kindNone:
	case kindForwarded:
		r.setForwarded(v)
	default:
		r.set(t.kind, v)
	}
}

// length returns the length of the field at the beginning of s.
func (t *part) length(s []byte, inQuotes bool) (n int, ok bool) {
	if len(t.until) == 0 { // a log may have more fields than its format
		n = bytes.IndexAny(s, " \t")
		if n < 0 || t.kind == kindAgent || t.kind == kindReferer {
			n = len(s)
		}
		return n, true
	}
	if inQuotes && t.until[0] == '"' {
		text, ok := quoted(s)
		return len(text), ok && bytes.HasPrefix(s[len(text):], t.until)
	}
	for {
		i := bytes.Index(s[n:], t.until)
		if i < 0 {
			return 0, false
		}
		n += i
		if n == 0 || s[n-1] != ',' || t.kind != kindIP && t.kind != kindForwarded {
			return n, true
		}
		n++ // a list of addresses has a space after each comma
	}
}

// w3cFields are the kinds of the fields of W3C logs.
var w3cFields = map[string]int{
	"date": kindDate, "time": kindTime, "time-taken": kindDuration, "c-ip": kindIP,
	"cs-username": kindUser, "cs-method": kindMethod, "cs-uri": kindPath, "cs-uri-stem": kindPath,
	"cs-uri-query": kindQuery, "sc-status": kindStatus, "cs(Referer)": kindReferer,
	"cs(User-Agent)": kindAgent,
}

// w3c returns the layout of a W3C log, with the fields of more before others; it may be nil. IIS
// separates fields by spaces and logs the time taken in milliseconds; CloudFront separates them by
// tabs, though not their names, and logs seconds.
func w3c(fields string, more *tree) *layout {
	separated := func(by string, unit time.Duration) *layout {
		l := &layout{schema: schema{unit: unit, text: true}, names: fields}
		for name := range strings.FieldsSeq(fields) {
			one := part{kind: w3cFields[name], rank: 2, name: name, until: []byte(by)}
			if rank := forwardedRank(name); one.kind == kindNone && rank > 0 {
				one.kind, one.rank = kindForwarded, foldedRank+rank
			}
			if more != nil {
				if own := more.root.find(name); own != nil {
					one.kind, one.rank, one.ported = own.kind, 1, own.ported
				}
			}
			l.parts = append(l.parts, one)
		}
		l.parts[len(l.parts)-1].until = nil
		l.needs[kindTime], l.needs[kindDate], l.needs[kindIP] = true, true, true
		return l
	}
	l := separated(" ", time.Millisecond)
	l.tabbed = separated("\t", time.Second)
	return l
}

// fieldsDirective begins the line with the names of the fields of a W3C log.
var fieldsDirective = []byte("#Fields:")

// Fields returns the last directive in a part of a W3C log that names the fields, or nil.
func Fields(text []byte) []byte {
	end := []byte("\n")
	i := bytes.LastIndex(text, slices.Concat(end, fieldsDirective))
	if i < 0 && !bytes.HasPrefix(text, fieldsDirective) {
		return nil
	}
	line, _, _ := bytes.Cut(text[i+1:], end)
	return line
}
