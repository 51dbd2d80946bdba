package accesslog

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Format is the format of a log's lines. The zero value recognizes the common and the combined
// format and the JSON of every preset.
type Format struct {
	textOnly, jsonOnly bool
	maps               []*tree // nil means all presets
}

// Map says where the fields of a JSON line are. Each field is a list of dotted paths, such as
// request.client_ip; the first path whose value is present and not empty or "-" is used.
type Map struct {
	Time     []string // the end of the request, or its arrival without a Duration
	Duration []string // of the request
	IP       []string // the client's address, with or without a port
	User     []string
	Method   []string
	Path     []string // with or without a query
	Status   []string
	Request  []string // METHOD TARGET PROTOCOL in one, for logs without Method and Path

	// DurationUnit is the unit of a Duration that is a number. 0 means seconds.
	DurationUnit time.Duration

	// exact is set if a whole number of seconds is as precise as one with a fraction.
	exact bool
}

// presets are the JSON formats with a name, in the order in which they are tried.
var presets = []struct {
	name string
	Map
}{
	{"caddy", Map{
		Time: []string{"ts"}, Duration: []string{"duration"},
		// remote_addr: before 2.5
		IP:   []string{"request.client_ip", "request.remote_ip", "request.remote_addr"},
		User: []string{"user_id"}, Method: []string{"request.method"}, Path: []string{"request.uri"},
		Status: []string{"status"}, exact: true,
	}},
	{"weir", Map{
		Time: []string{"time"}, Duration: []string{"ms"}, DurationUnit: time.Millisecond,
		IP:     []string{"client"},
		Method: []string{"method"}, Path: []string{"path"}, Status: []string{"status"},
	}},
	{"nginx", Map{
		Time:     []string{"msec", "time_iso8601", "time_local", "time", "@timestamp", "timestamp"},
		Duration: []string{"request_time"}, IP: []string{"realip_remote_addr", "remote_addr"},
		User:   []string{"remote_user"},
		Method: []string{"request_method", "method"}, Path: []string{"request_uri", "uri"},
		Status:  []string{"status"},
		Request: []string{"request"},
	}},
	{"traefik", Map{
		Time: []string{"StartUTC", "StartLocal"}, IP: []string{"ClientHost", "ClientAddr"},
		User:   []string{"ClientUsername"},
		Method: []string{"RequestMethod"}, Path: []string{"RequestPath"},
		Status: []string{"DownstreamStatus"},
	}},
	{"envoy", Map{
		Time: []string{"start_time"}, IP: []string{"downstream_remote_address"}, Method: []string{"method"},
		Path: []string{"path"}, Status: []string{"response_code"},
	}},
}

var presetTrees = func() (all []*tree) {
	for _, p := range presets {
		all = append(all, newTree(p.Map))
	}
	return all
}()

// Formats returns the names that ParseFormat accepts.
func Formats() []string {
	names := []string{"auto", "common", "combined"}
	for _, p := range presets {
		names = append(names, p.name)
	}
	return append(names, "json")
}

// ParseFormat returns the format with that name: auto, common or combined (which are the same: both
// read lines of either), a preset, or json. For json, fields maps the fields, such as time=ts,ip=client.address.
func ParseFormat(name, fields string) (Format, error) {
	if name == "json" || fields != "" {
		if name != "json" && name != "auto" {
			return Format{}, fmt.Errorf("a map of fields needs the format json, not %s", name)
		}
		m, err := ParseMap(fields)
		return Format{jsonOnly: true, maps: []*tree{newTree(m)}}, err
	}
	switch name {
	case "auto":
		return Format{}, nil
	case "common", "combined":
		return Format{textOnly: true}, nil
	}
	for i, p := range presets {
		if p.name == name {
			return Format{jsonOnly: true, maps: presetTrees[i : i+1]}, nil
		}
	}
	return Format{}, fmt.Errorf("unknown format %q: want one of %s", name, strings.Join(Formats(), ", "))
}

// fieldNames are the field names in a map that is given as text.
var fieldNames = []string{"time", "ip", "user", "method", "path", "status", "request", "duration",
	"duration_ms", "duration_ns"}

// ParseMap parses FIELD=PATH,FIELD=PATH... A FIELD that occurs again adds another PATH, which is
// used if a line does not have the first. ParseMap fails if a FIELD is unknown or if time is
// missing.
func ParseMap(text string) (Map, error) {
	var m Map
	for part := range strings.SplitSeq(text, ",") {
		field, path, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok || path == "" || slices.Contains(strings.Split(path, "."), "") {
			return m, fmt.Errorf("map %q: want FIELD=PATH, such as time=ts or ip=request.client_ip", part)
		}
		if err := m.add(field, path); err != nil {
			return m, err
		}
	}
	if len(m.Time) == 0 {
		return m, fmt.Errorf("map %q: time is missing", text)
	}
	return m, nil
}

func (m *Map) add(field, path string) error {
	unit := map[string]time.Duration{"duration": time.Second, "duration_ms": time.Millisecond,
		"duration_ns": 1}[field]
	if unit > 0 {
		if len(m.Duration) > 0 && m.DurationUnit != unit {
			return fmt.Errorf("map: durations in two units")
		}
		m.Duration, m.DurationUnit = append(m.Duration, path), unit
		return nil
	}
	to := map[string]*[]string{"time": &m.Time, "ip": &m.IP, "user": &m.User, "method": &m.Method,
		"path": &m.Path, "status": &m.Status, "request": &m.Request}[field]
	if to == nil {
		return fmt.Errorf("map: unknown field %q; want one of %s", field, strings.Join(fieldNames, ", "))
	}
	*to = append(*to, path)
	return nil
}
