package replay

import (
	"encoding/binary"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/weirgo/weir/cmd/weir/internal/accesslog"
	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules"
)

// RuleSet is rules to replay, in place of limits.
type RuleSet struct {
	Set    *rules.Set
	Domain string
	Flags  []string // the words of a command line that load Set
}

// Rules decide on descriptors, which several callers may share. So a replay of rules numbers
// distinct descriptions instead of callers while it reads a log. A description is a text: the
// caller of a request and the descriptors that the rules' rate_limits make of it. Memory grows with
// the number of descriptions.

// describer describes requests. It is not safe for concurrent use.
type describer struct {
	keys   *keyer
	rules  *RuleSet
	ip     httplimit.IP
	caller []byte
	header http.Header
}

func newDescriber(cfg *Config, keys *keyer) *describer {
	return &describer{keys: keys, rules: cfg.RuleSet,
		ip: httplimit.ClientIP(cfg.Trust), header: make(http.Header)}
}

// append appends the description of a request. A request without a caller is decided on too, as in
// the middleware, with a hyphen as its caller.
func (d *describer) append(dst []byte, e *accesslog.Entry) []byte {
	if d.caller = d.keys.append(d.caller[:0], e); len(d.caller) == 0 {
		d.caller = append(d.caller, '-')
	}
	dst = appendText(dst, string(d.caller))
	for _, desc := range d.rules.Set.RequestOf(d.rules.Domain, Request(e, d.header), d.ip).Descriptors {
		hits := uint64(0)
		if desc.HasHits {
			hits = desc.Hits + 1
		}
		dst = binary.AppendUvarint(binary.AppendUvarint(dst, hits), uint64(len(desc.Entries)))
		for _, entry := range desc.Entries {
			dst = appendText(appendText(dst, entry.Key), entry.Value)
		}
	}
	return dst
}

// Request returns the request with the fields that the log has: the address, the method, the target, the
// user as the context value "user", and in the combined format the referer and the user agent, in header.
func Request(e *accesslog.Entry, header http.Header) *http.Request {
	u := urlOf(e)
	clear(header)
	referer, agent := e.Headers()
	list, _ := e.Forwarded()
	for name, value := range map[string]string{"Referer": referer, "User-Agent": agent,
		"X-Forwarded-For": list} {
		if value != "" {
			header.Set(name, value)
		}
	}
	r := &http.Request{Method: string(e.Method), URL: u, Host: u.Host, Header: header,
		RemoteAddr: string(e.IP)}
	if len(e.User) > 0 {
		r = r.WithContext(rules.WithValue(r.Context(), "user", string(e.User)))
	}
	return r
}

// urlOf returns the URL of a request.
func urlOf(e *accesslog.Entry) *url.URL {
	target := string(e.Path)
	if len(e.Query) > 0 {
		target += "?" + string(e.Query)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil { // a server would answer such a request without its limits
		u = &url.URL{Path: string(e.Path), RawQuery: string(e.Query)}
	}
	return u
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

var errDescription = errors.New("a description is damaged")

// description is a description, of which the part already read is cut off.
type description string

func (d *description) number() uint64 {
	var n uint64
	for shift, i := 0, 0; i < len(*d); shift, i = shift+7, i+1 {
		c := (*d)[i]
		n |= uint64(c&0x7f) << shift
		if c < 0x80 {
			*d = (*d)[i+1:]
			return n
		}
	}
	panic(errDescription)
}

func (d *description) text() string {
	n := d.number()
	s := string((*d)[:n])
	*d = (*d)[n:]
	return s
}

// read reads descriptors into req and reuses its memory.
func (d *description) read(req *rules.Request) {
	req.Descriptors = req.Descriptors[:0]
	for len(*d) > 0 {
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

// described holds the descriptions after all files are read. They are in sorted order: requests of one
// instant are decided on in the order of their codes, where callers share a counter the first one gets
// the last free unit, and no report may depend on the order of the lines.
type described struct {
	names  []string // the descriptions, indexed by code
	owners []uint32 // the caller, indexed by code
}

// divide takes the texts that r numbered as descriptions, and numbers their callers instead.
func (r *run) divide() error {
	all := r.callers
	order := make([]uint32, len(all.names))
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return strings.Compare(all.names[a], all.names[b]) })
	d, codes := &described{}, make([]uint32, len(order))
	r.callers = newCallers()
	for place, i := range order {
		rest := description(all.names[i])
		owner, err := r.callers.number([]byte(rest.text()))
		if err != nil {
			return err
		}
		d.names, d.owners = append(d.names, all.names[i]), append(d.owners, owner)
		r.callers.requests[owner] += all.requests[i]
		codes[i] = uint32(place)
	}
	for _, run := range r.parts[0].spool.runs { // rules have one part
		for i := range run {
			run[i].code = codeOf(codes[run[i].code>>1], run[i].code&1 == 1)
		}
	}
	r.described = d
	return nil
}
