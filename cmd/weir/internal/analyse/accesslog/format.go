package accesslog

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Format is the format of a log's lines. The zero value recognizes the common and the combined
// format, the JSON of every preset, and W3C logs that begin with their fields.
type Format struct {
	// Prefix is removed from each line that it matches. It must match only at the beginning.
	Prefix *regexp.Regexp

	// Lists is set if the address may be a list, as in X-Forwarded-For. Entry.IP is then the last of
	// it and Entry.Forwarded returns the others.
	Lists bool

	// NoTarget is set if Entry.Method, Path and Query are not needed: to cut them out of a line takes
	// a tenth of the time of a replay. They may be set all the same.
	NoTarget bool

	textOnly, jsonOnly bool
	given              bool    // maps are those of the user, or of one preset
	maps               []*tree // nil means all presets
	more               *tree   // the user's fields beside those of presets and of W3C logs; may be nil
	layout             *layout // of lines of text; nil for the common format
	fields             *layout // of a W3C log whose fields are not in the file
}

// named are the formats with a name. Common and combined both read lines of either. Those of JSON
// stand in the order in which they are tried. In those of text, a field that is not needed is an
// underscore.
var named = []struct {
	name string
	Format
}{
	{"auto", Format{}},
	{"common", Format{textOnly: true}},
	{"combined", Format{textOnly: true}},
	{"caddy", preset("time=ts,duration=duration,ip=request.client_ip,ip=request.remote_ip," +
		"ip=request.remote_addr,user=user_id,method=request.method,path=request.uri,status=status," +
		"xff=request.headers.X-Forwarded-For,referer=request.headers.Referer," +
		"agent=request.headers.User-Agent")},
	{"weir", preset("time=time,duration_ms=ms,ip=client,method=method,path=path,status=status")},
	{"nginx", preset("time=msec,time=time_iso8601,time=time_local,time=time,time=@timestamp," +
		"time=timestamp,duration=request_time,ip=remote_addr,user=remote_user," +
		"method=request_method,method=method,path=request_uri,path=uri,path=path," +
		"query=request_query,status=status,request=request,xff=http_x_forwarded_for," +
		"xff=x_forwarded_for,referer=http_referer,referer=http_referrer,agent=http_user_agent")},
	{"traefik", preset("start=StartUTC,start=StartLocal,duration_ns=Duration,ip=ClientHost," +
		"ip=ClientAddr," +
		"user=ClientUsername,method=RequestMethod,path=RequestPath,status=DownstreamStatus," +
		"xff=request_X-Forwarded-For,referer=request_Referer,agent=request_User-Agent")},
	{"envoy", preset("start=start_time,duration_ms=duration,ip=downstream_remote_address," +
		"method=method,path=path," +
		"path=x-envoy-origin-path,path=x-envoy-original-path,path=x_envoy_original_path," +
		"status=response_code,xff=x_forwarded_for,agent=user_agent,agent=user-agent")},
	{"cloudflare", preset("start=EdgeStartTimestamp,time=EdgeEndTimestamp,ip=ClientIP," +
		"method=ClientRequestMethod,path=ClientRequestURI,status=EdgeResponseStatus," +
		"referer=ClientRequestReferer," +
		"agent=ClientRequestUserAgent")},
	{"gcp", preset("start=timestamp,duration=httpRequest.latency,ip=httpRequest.remoteIp," +
		"method=httpRequest.requestMethod,path=httpRequest.requestUrl,status=httpRequest.status," +
		"referer=httpRequest.referer," +
		"agent=httpRequest.userAgent")},
	{"azure", preset("time=time,time=timeStamp,ip=properties.clientIp,ip=properties.clientIP," +
		"ip=properties.CIp,method=properties.httpMethod,method=properties.CsMethod," +
		"path=properties.requestUri,path=properties.CsUriStem,query=properties.requestQuery," +
		"query=properties.CsUriQuery,status=properties.httpStatusCode,status=properties.httpStatus," +
		"status=properties.ScStatus,agent=properties.userAgent,agent=properties.UserAgent")},
	{"logfmt", preset("time=time,time=ts,time=timestamp,time=@timestamp,time=t,duration_ms=ms," +
		"duration_ms=service,duration_ms=duration,ip=client,ip=remote_addr,ip=remote_ip,ip=client_ip," +
		"ip=ip,ip=remote,ip=fwd,user=user,method=method,path=path,path=uri,path=url,status=status," +
		"status=code,referer=referer,agent=user_agent,agent=agent")},
	{"alb", must(ParseLayout(`$_ $time_iso8601 $_ $remote_addr:$remote_port $_ $_ $_ $_ $status $_ ` +
		`$_ $_ "$request" "$http_user_agent" $_ $_ $_ "$_" "$_" "$_" $_ $_start`))},
	{"envoy-text", inMilliseconds(must(ParseLayout(`[$_start] "$request" $status $_ $_ $_ ` +
		`$request_time $_ "$http_x_forwarded_for" "$http_user_agent" $_`)))},
	{"haproxy", cutShort(inMilliseconds(must(ParseLayout(`$remote_addr:$remote_port [$_start] $_ $_ ` +
		`$_timers $status $_ "$request"`))))},
	{"squid", inMilliseconds(must(ParseLayout(`$msec $request_time $remote_addr $_/$status $_ ` +
		`$request_method $request_uri $remote_user $_ $_`)))},
	{"s3", inMilliseconds(must(ParseLayout(`$_ $_ [$_start] $remote_addr $remote_user $_ $_ $_ ` +
		`"$request" $status $_ $_ $_ $request_time $_ "$http_referer" "$http_user_agent"`)))},
	{"cloudfront", Format{maps: preset("time=date+time,duration=time-taken,ip=c-ip,method=cs-method," +
		"path=cs-uri-stem,query=cs-uri-query,status=sc-status,xff=x-forwarded-for," +
		"referer=cs(Referer),agent=cs(User-Agent)").maps, fields: w3c("date time "+
		"x-edge-location sc-bytes c-ip cs-method cs(Host) "+
		"cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) "+
		"x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken "+
		"x-forwarded-for", nil)}},
	{"iis", Format{fields: w3c("date time s-ip cs-method cs-uri-stem cs-uri-query s-port "+
		"cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status "+
		"time-taken", nil)}},
}

// preset returns the format of JSON with the fields of a map.
func preset(fields string) Format {
	t := must(newTree(fields, ""))
	t.folds = true
	return Format{jsonOnly: true, given: true, maps: []*tree{t}}
}

// must returns v, which is known to be valid.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// cutShort returns a format whose last field may lack its end, and the closing quote: syslog cuts a
// line after some length.
func cutShort(f Format) Format {
	f.layout.cut = true
	return f
}

// inMilliseconds returns a format whose durations are in milliseconds.
func inMilliseconds(f Format) Format {
	f.layout.unit = time.Millisecond
	return f
}

// presetTrees are the maps of JSON with a name, and logfmtTrees those of logfmt.
var presetTrees, logfmtTrees = func() (json, logfmt []*tree) {
	for _, f := range named {
		switch f.name {
		case "caddy":
			f.maps[0].exact = true
		case "nginx":
			// ingress-nginx documents a log with an empty remote_addr unless it gets the PROXY protocol.
			f.maps[0].standIn = true
		case "logfmt":
			logfmt = f.maps
			continue
		}
		json = append(json, f.maps...)
	}
	return json, logfmt
}()

// Formats returns the names that ParseFormat accepts.
func Formats() (names []string) {
	for _, f := range named {
		names = append(names, f.name)
	}
	return append(names, "json")
}

// ParseFormat returns the format with that name. For json, fields is FIELD=PATH,FIELD=PATH..., such
// as time=ts,ip=client.address: where the fields of a JSON line are, with dots between nested keys.
// A FIELD that occurs again adds another PATH, which is used if a line does not have the first or
// has it empty. Of other formats with keys, and of auto unless they have a time, fields come before
// those that the format has.
func ParseFormat(name, fields string) (Format, error) {
	own, err := newTree(fields, "")
	switch {
	case fields == "" && name != "json":
	case err != nil:
		return Format{}, err
	case name == "json" && !own.dated():
		return Format{}, fmt.Errorf("map %q: time is missing", fields)
	case name == "json" || name == "auto" && own.dated():
		return Format{jsonOnly: true, given: true, maps: []*tree{own}}, nil
	}
	for _, f := range named {
		if f.name == name {
			return f.with(own, fields)
		}
	}
	return Format{}, fmt.Errorf("unknown format %q: want one of %s", name,
		strings.Join(Formats(), ", "))
}

// with returns a format with more fields before its own.
func (f Format) with(own *tree, fields string) (Format, error) {
	if fields == "" {
		return f, nil
	}
	if f.textOnly || f.layout != nil {
		return f, errors.New("a map of fields needs a format with keys: json, logfmt, a W3C log or " +
			"the JSON of a server")
	}
	presets := f.maps
	if presets == nil {
		presets = slices.Concat(presetTrees, logfmtTrees)
	}
	f.maps, f.given, f.more = nil, true, own
	for _, preset := range presets {
		t, err := newTree(fields, preset.text)
		if err != nil {
			return f, err
		}
		t.exact, t.folds = preset.exact, true
		t.standIn = preset.standIn && !strings.Contains(fields, "xff=")
		f.maps = append(f.maps, t)
	}
	if f.fields != nil {
		f.fields = w3c(f.fields.names, own)
	}
	return f, nil
}

// The kinds of values of a request that a line can have.
const (
	kindNone = iota // of a field that is not needed
	kindTime
	kindStart // of the request; then the time is that of its end, whether there is a duration or not
	kindDate  // of the time, if that is in another field
	kindDuration
	kindIP
	kindUser
	kindMethod
	kindPath
	kindQuery
	kindStatus
	kindRequest // METHOD TARGET PROTOCOL in one, for logs without method and path
	kindForwarded
	kindReferer
	kindAgent
	kindLine // a whole line, as in the JSON of containers
	kinds
)

// fieldName is a field of a map. With a duration, of a unit, or with a start, the time is that of
// the end of the request.
type fieldName struct {
	name string
	kind int
	unit time.Duration
}

// ipPort is the field of an address that a port always follows.
const ipPort = "ip_port"

var fieldNames = []fieldName{
	{"time", kindTime, 0}, {"start", kindStart, 0}, {"ip", kindIP, 0}, {ipPort, kindIP, 0}, {"user",
		kindUser, 0},
	{"method", kindMethod, 0}, {"path", kindPath, 0}, {"query", kindQuery, 0},
	{"status", kindStatus, 0}, {"request", kindRequest, 0},
	{"xff", kindForwarded, 0}, {"referer", kindReferer, 0}, {"agent", kindAgent, 0},
	{"duration", kindDuration, time.Second}, {"duration_ms", kindDuration, time.Millisecond},
	{"duration_ns", kindDuration, 1}, {"line", kindLine, 0},
}

// schema is what a format says about its fields.
type schema struct {
	unit time.Duration // of a duration that is a number

	hasDuration bool

	exact   bool
	text    bool        // the address must be one
	standIn bool        // a forwarded address is that of the client if a line has no other
	folds   bool        // forwarded addresses are found under their names in any spelling
	needs   [kinds]bool // the kinds that a request must have
}

// dated reports whether there is a time of each request.
func (s *schema) dated() bool { return s.needs[kindTime] || s.needs[kindStart] }

// date has a line with the start of a request need no other time.
func (s *schema) date() { s.needs[kindTime] = s.needs[kindTime] && !s.needs[kindStart] }

// tree is a map of fields in the form that the walker needs: the keys of an object and, below them,
// the keys of nested objects.
type tree struct {
	schema
	root node
	text string // that it was made from
}

type node struct {
	name string
	kids []*node
	leaf bool
	kind int
	rank int // among the paths of kind, from 1; the lowest rank wins

	ported bool // of a kindIP: a port always follows the address
}

// newTree returns the tree of a map, and of another one for what that does not have.
func newTree(fields, rest string) (*tree, error) {
	t := &tree{schema: schema{unit: time.Second}, text: fields}
	var ranks [kinds]int
	for part := range strings.SplitSeq(fields, ",") {
		if err := t.add(strings.TrimSpace(part), &ranks); err != nil {
			return t, err
		}
	}
	// A time that is given takes the place of a start; without a duration it is the arrival.
	starts := t.needs[kindTime] && !t.needs[kindStart] && strings.Contains(rest, "start=")
	own := t.hasDuration || starts
	for part := range strings.SplitSeq(rest, ",") {
		if rest == "" || own && strings.HasPrefix(part, "duration") ||
			starts && strings.HasPrefix(part, "start=") {
			continue
		}
		if err := t.add(part, &ranks); err != nil {
			return t, err
		}
	}
	t.date()
	return t, nil
}

// add adds FIELD=PATH. ranks are the numbers of paths of each kind. A path that is there stays.
func (t *tree) add(part string, ranks *[kinds]int) error {
	name, path, ok := strings.Cut(part, "=")
	if !ok || path == "" || slices.Contains(strings.Split(path, "."), "") {
		return fmt.Errorf("map %q: want FIELD=PATH, such as time=ts or ip=request.client_ip", part)
	}
	i := slices.IndexFunc(fieldNames, func(f fieldName) bool { return f.name == name })
	if i < 0 {
		var names []string
		for _, f := range fieldNames[:len(fieldNames)-1] {
			names = append(names, f.name)
		}
		return fmt.Errorf("map: unknown field %q; want one of %s", name, strings.Join(names, ", "))
	}
	f := fieldNames[i]
	if f.unit > 0 && t.hasDuration && t.unit != f.unit {
		return errors.New("map: durations in two units")
	}
	if f.unit > 0 {
		t.unit, t.hasDuration = f.unit, true
	}
	ranks[f.kind]++
	t.needs[f.kind] = f.kind == kindTime || f.kind == kindStart || f.kind == kindIP
	if date, time, ok := strings.Cut(path, "+"); ok && f.kind == kindTime && date != "" && time != "" {
		t.root.put(date, node{kind: kindDate, rank: ranks[f.kind]})
		path = time
	}
	t.root.put(path, node{kind: f.kind, rank: ranks[f.kind], ported: f.name == ipPort})
	return nil
}

// pair stores the value of a key of logfmt.
func (t *tree) pair(r *reading, key, text []byte) {
	for _, k := range t.root.kids {
		if k.leaf && k.name == string(key) {
			r.set(k.kind, value{text: text, str: true, rank: k.rank, ported: k.ported})
			return
		}
	}
	if t.folds {
		r.fold(key, text)
	}
}

// put makes a leaf of the node at a path below n, unless it is one.
func (n *node) put(path string, as node) {
	for name := range strings.SplitSeq(path, ".") {
		n = n.kid(name)
	}
	if !n.leaf {
		n.leaf, n.kind, n.rank, n.ported = true, as.kind, as.rank, as.ported
	}
}

// find returns the child of n with that name, or nil.
func (n *node) find(name string) *node {
	i := slices.IndexFunc(n.kids, func(k *node) bool { return k.name == name })
	if i < 0 {
		return nil
	}
	return n.kids[i]
}

// kid returns the child of n with that name, and adds it if it does not exist.
func (n *node) kid(name string) *node {
	if k := n.find(name); k != nil {
		return k
	}
	n.kids = append(n.kids, &node{name: name})
	return n.kids[len(n.kids)-1]
}
