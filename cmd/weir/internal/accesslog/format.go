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
	maps               []*tree // nil means all presets
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
	{"traefik", preset("time=StartUTC,time=StartLocal,ip=ClientHost,ip=ClientAddr," +
		"user=ClientUsername,method=RequestMethod,path=RequestPath,status=DownstreamStatus," +
		"xff=request_X-Forwarded-For,referer=request_Referer,agent=request_User-Agent")},
	{"envoy", preset("time=start_time,ip=downstream_remote_address,method=method,path=path," +
		"status=response_code,xff=x_forwarded_for,agent=user_agent")},
	{"cloudflare", preset("time=EdgeStartTimestamp,ip=ClientIP,method=ClientRequestMethod," +
		"path=ClientRequestURI,status=EdgeResponseStatus,referer=ClientRequestReferer," +
		"agent=ClientRequestUserAgent")},
	{"gcp", preset("time=timestamp,ip=httpRequest.remoteIp,method=httpRequest.requestMethod," +
		"path=httpRequest.requestUrl,status=httpRequest.status,referer=httpRequest.referer," +
		"agent=httpRequest.userAgent")},
	{"alb", must(ParseLayout(`$_ $_ $_ $remote_addr:$remote_port $_ $_ $_ $_ $status $_ $_ $_ ` +
		`"$request" "$http_user_agent" $_ $_ $_ "$_" "$_" "$_" $_ $time_iso8601`))},
	{"envoy-text", must(ParseLayout(`[$time_iso8601] "$request" $status $_ $_ $_ $_ $_ ` +
		`"$http_x_forwarded_for" "$http_user_agent" $_`))},
	{"haproxy", cutShort(must(ParseLayout(`$remote_addr:$remote_port [$time_local] $_ $_ $_ ` +
		`$status $_ "$request"`)))},
	{"s3", must(ParseLayout(`$_ $_ [$time_local] $remote_addr $remote_user $_ $_ $_ "$request" ` +
		`$status $_ $_ $_ $_ $_ "$http_referer" "$http_user_agent"`))},
	{"cloudfront", Format{fields: w3c("date time x-edge-location sc-bytes c-ip cs-method cs(Host) " +
		"cs-uri-stem sc-status cs(Referer) cs(User-Agent) cs-uri-query cs(Cookie) " +
		"x-edge-result-type x-edge-request-id x-host-header cs-protocol cs-bytes time-taken " +
		"x-forwarded-for")}},
	{"iis", Format{fields: w3c("date time s-ip cs-method cs-uri-stem cs-uri-query s-port " +
		"cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-substatus sc-win32-status " +
		"time-taken")}},
}

// preset returns the format of JSON with the fields of a map.
func preset(fields string) Format {
	return Format{jsonOnly: true, maps: []*tree{must(newTree(fields))}}
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

// presetTrees are the maps of JSON with a name.
var presetTrees = func() (all []*tree) {
	for _, f := range named {
		all = append(all, f.maps...)
	}
	all[0].exact = true // Caddy's
	// ingress-nginx documents a log with an empty remote_addr unless it gets the PROXY protocol.
	all[2].standIn = true // nginx's
	return all
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
// has it empty.
func ParseFormat(name, fields string) (Format, error) {
	if name == "json" || fields != "" {
		if name != "json" && name != "auto" {
			return Format{}, fmt.Errorf("a map of fields needs the format json, not %s", name)
		}
		t, err := newTree(fields)
		if err == nil && !t.needs[kindTime] {
			err = fmt.Errorf("map %q: time is missing", fields)
		}
		return Format{jsonOnly: true, maps: []*tree{t}}, err
	}
	for _, f := range named {
		if f.name == name {
			return f.Format, nil
		}
	}
	return Format{}, fmt.Errorf("unknown format %q: want one of %s", name,
		strings.Join(Formats(), ", "))
}

// The kinds of values of a request that a line can have.
const (
	kindNone = iota // of a field that is not needed
	kindTime
	kindDate // of the time, if that is in another field
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

// fieldName is a field of a map. With a duration, of a unit, the time is that of the end of the
// request.
type fieldName struct {
	name string
	kind int
	unit time.Duration
}

// ipPort is the field of an address that a port always follows.
const ipPort = "ip_port"

var fieldNames = []fieldName{
	{"time", kindTime, 0}, {"ip", kindIP, 0}, {ipPort, kindIP, 0}, {"user", kindUser, 0},
	{"method", kindMethod, 0}, {"path", kindPath, 0}, {"query", kindQuery, 0},
	{"status", kindStatus, 0}, {"request", kindRequest, 0},
	{"xff", kindForwarded, 0}, {"referer", kindReferer, 0}, {"agent", kindAgent, 0},
	{"duration", kindDuration, time.Second}, {"duration_ms", kindDuration, time.Millisecond},
	{"duration_ns", kindDuration, 1}, {"line", kindLine, 0},
}

// schema is what a format says about its fields.
type schema struct {
	unit    time.Duration // of a duration that is a number
	exact   bool
	text    bool        // the address must be one
	standIn bool        // a forwarded address is that of the client if a line has no other
	needs   [kinds]bool // the kinds that a request must have
}

// tree is a map of fields in the form that the walker needs: the keys of an object and, below them,
// the keys of nested objects.
type tree struct {
	schema
	root node
}

type node struct {
	name string
	kids []*node
	leaf bool
	kind int
	rank int // among the paths of kind, from 1; the lowest rank wins

	ported bool // of a kindIP: a port always follows the address
}

func newTree(fields string) (*tree, error) {
	t := &tree{schema: schema{unit: time.Second}}
	var ranks [kinds]int
	for part := range strings.SplitSeq(fields, ",") {
		name, path, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || path == "" || slices.Contains(strings.Split(path, "."), "") {
			return t, fmt.Errorf("map %q: want FIELD=PATH, such as time=ts or ip=request.client_ip", part)
		}
		i := slices.IndexFunc(fieldNames, func(f fieldName) bool { return f.name == name })
		if i < 0 {
			var names []string
			for _, f := range fieldNames[:len(fieldNames)-1] {
				names = append(names, f.name)
			}
			return t, fmt.Errorf("map: unknown field %q; want one of %s", name, strings.Join(names, ", "))
		}
		f := fieldNames[i]
		if f.unit > 0 && ranks[f.kind] > 0 && t.unit != f.unit {
			return t, errors.New("map: durations in two units")
		}
		if f.unit > 0 {
			t.unit = f.unit
		}
		n := &t.root
		for name := range strings.SplitSeq(path, ".") {
			n = n.kid(name)
		}
		ranks[f.kind]++
		n.leaf, n.kind, n.rank, n.ported = true, f.kind, ranks[f.kind], f.name == ipPort
		t.needs[f.kind] = f.kind == kindTime || f.kind == kindIP
	}
	return t, nil
}

// kid returns the child of n with that name, and adds it if it does not exist.
func (n *node) kid(name string) *node {
	if i := slices.IndexFunc(n.kids, func(k *node) bool { return k.name == name }); i >= 0 {
		return n.kids[i]
	}
	n.kids = append(n.kids, &node{name: name})
	return n.kids[len(n.kids)-1]
}
