package replay

import (
	"cmp"
	"encoding/binary"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/analyse/accesslog"
	"github.com/weirgo/weir/cmd/weir/internal/analyse/endpoint"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/doors/urlpath"
	"github.com/weirgo/weir/rules"
	"github.com/weirgo/weir/rules/describe"
)

// describer describes requests. It is not safe for concurrent use.
type describer struct {
	keys   *keyer
	cfg    *Config
	ip     httplimit.IP
	caller []byte
	header http.Header
}

// append appends the description of a request. Rules decide on a request without a caller too, as
// in the middleware, with a hyphen as its caller.
func (d *describer) append(dst []byte, e *accesslog.Entry) []byte {
	d.caller = d.keys.append(d.caller[:0], e)
	if len(d.caller) == 0 {
		if d.cfg.RuleSets == nil {
			return dst
		}
		d.caller = append(d.caller, '-')
	}
	place := ""
	if d.cfg.ByEndpoint {
		place = endpointOf(e)
	}
	dst = appendText(appendText(dst, string(d.caller)), place)
	for _, s := range d.cfg.RuleSets {
		all := s.Set.RequestOf(s.Domain, Request(e, d.header), d.ip).Descriptors
		dst = binary.AppendUvarint(dst, uint64(len(all)))
		for _, desc := range all {
			hits := uint64(0)
			if desc.HasHits {
				hits = desc.Hits + 1
			}
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, hits), uint64(len(desc.Entries)))
			for _, entry := range desc.Entries {
				dst = appendText(appendText(dst, entry.Key), entry.Value)
			}
		}
	}
	return dst
}

// endpointOf returns the endpoint of a request, of whose path only ids are folded.
func endpointOf(e *accesslog.Entry) string {
	path := ""
	if len(e.Path) > 0 {
		path = urlpath.Canonical(string(e.Path))
	}
	return endpoint.Of(string(e.Method), path)
}

// Request returns the request with the fields that the log has: the address, the method, the
// target, the user as the context value "user", and in the combined format the referer and the user
// agent, in header.
func Request(e *accesslog.Entry, header http.Header) *http.Request {
	u := urlOf(e)
	clear(header)
	referer, agent := e.Headers()
	list, _ := e.Forwarded()
	all := map[string]string{"Referer": referer, "User-Agent": agent, "X-Forwarded-For": list}
	for name, value := range all {
		if value != "" {
			header.Set(name, value)
		}
	}
	r := &http.Request{Method: string(e.Method), URL: u, Host: u.Host, Header: header,
		RemoteAddr: string(e.IP)}
	if len(e.User) > 0 {
		r = r.WithContext(describe.WithValue(r.Context(), "user", string(e.User)))
	}
	return r
}

func urlOf(e *accesslog.Entry) *url.URL {
	target := string(e.Path)
	if len(e.Query) > 0 {
		target += "?" + string(e.Query)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil { // a server would answer such a request without its limits
		return &url.URL{Path: string(e.Path), RawQuery: string(e.Query)}
	}
	return u
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

// description is a description, of which the part already read is cut off.
type description string

func (d *description) number() uint64 {
	n, size := binary.Uvarint([]byte((*d)[:min(len(*d), binary.MaxVarintLen64)]))
	*d = (*d)[size:]
	return n
}

func (d *description) text() string {
	n := d.number()
	s := string((*d)[:n])
	*d = (*d)[n:]
	return s
}

// read reads the descriptors of a set of rules into req and reuses its memory.
func (d *description) read(req *rules.Request) {
	req.Descriptors = req.Descriptors[:0]
	for range d.number() {
		i := len(req.Descriptors)
		req.Descriptors = slices.Grow(req.Descriptors, 1)[:i+1]
		to := &req.Descriptors[i]
		entries := to.Entries[:0]
		*to = rules.Descriptor{}
		if hits := d.number(); hits > 0 {
			to.Hits, to.HasHits = hits-1, true
		}
		for range d.number() {
			entries = append(entries, rules.Entry{Key: d.text(), Value: d.text()})
		}
		to.Entries = entries
	}
}

// described holds the descriptions after all files are read. They are in a fixed order: requests of
// one instant are decided on in the order of their codes, where callers share a counter the first
// one gets the last free unit, and no report may depend on the order of the lines.
type described struct {
	names  []string // the descriptions, indexed by code
	owners []uint32 // the caller, indexed by code
	place  *callers // the names of places

	// pairs are of a caller and an endpoint, for which suggestions are made, indexed by code; pair has
	// the place of each. Both are nil if suggestions are for all endpoints together.
	pairs, pair []uint32
}

// numbered is a description that is being taken apart.
type numbered struct {
	number        uint32
	caller, place string
}

// divide takes the texts that r numbered as descriptions, and numbers their callers instead. It
// sorts the descriptions by their callers, then by their places.
func (r *run) divide() {
	texts := r.callers
	all := make([]numbered, len(texts.names))
	for i, text := range texts.names {
		rest := description(text)
		all[i] = numbered{uint32(i), rest.text(), rest.text()}
	}
	r.nameEndpoints(all)
	slices.SortFunc(all, func(a, b numbered) int {
		order := strings.Compare(texts.names[a.number], texts.names[b.number])
		if a.caller != b.caller {
			return order // a text begins with its caller
		}
		return cmp.Or(strings.Compare(a.place, b.place), order)
	})
	r.callers = newCallers()
	d, codes := &described{place: newCallers()}, make([]uint32, len(all))
	for code, one := range all {
		owner, at := r.callers.number([]byte(one.caller)), d.place.number([]byte(one.place))
		r.callers.requests[owner] += texts.requests[one.number]
		d.place.requests[at] += texts.requests[one.number]
		if r.cfg.ByEndpoint {
			if code == 0 || owner != d.owners[code-1] || at != d.pair[len(d.pair)-1] {
				d.pair = append(d.pair, at)
			}
			d.pairs = append(d.pairs, uint32(len(d.pair)-1))
		}
		d.names = append(d.names, texts.names[one.number])
		d.owners = append(d.owners, owner)
		codes[one.number] = uint32(code)
	}
	for _, run := range r.parts[0].spool.runs { // descriptions have one part
		for i, e := range run {
			run[i].code = codeOf(codes[e.code>>markBits], marksOf(e.code))
		}
	}
	r.described = d
}

// nameEndpoints replaces the places of descriptions by the names of their endpoints.
func (r *run) nameEndpoints(all []numbered) {
	if !r.cfg.ByEndpoint {
		return
	}
	folded := endpoint.Fold(callersOf(all))
	for i := range all {
		all[i].place = folded[all[i].place]
	}
	met := callersOf(all)
	r.result.Names = slices.Sorted(maps.Keys(met))
	for i := range all {
		if name := all[i].place; met[name] < endpoint.MinCallers && !endpoint.Apart(name) {
			all[i].place = endpoint.Others
		}
	}
}

// callersOf returns the number of callers of each place.
func callersOf(all []numbered) map[string]int {
	seen, met := map[numbered]bool{}, map[string]int{}
	for _, one := range all {
		one.number = 0 // a caller and a place have several
		if !seen[one] {
			seen[one] = true
			met[one.place]++
		}
	}
	return met
}
