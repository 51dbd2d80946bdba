package replay

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
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
	Paths  []string // that Set was loaded from
}

// Rules decide on all requests of a run together, by descriptors, of which several callers may
// share one. So what is numbered while a log is read is not its callers but its distinct
// descriptions: of who made a request, and of the descriptors that the rules' rate_limits make of
// it. A description is text, and memory is by descriptions.

// describer describes requests. It is not safe for concurrent use.
type describer struct {
	keys   *keyer
	rules  *RuleSet
	caller []byte
	header http.Header
}

func newDescriber(cfg *Config) *describer {
	return &describer{keys: newKeyer(cfg.By, cfg.IPv6Bits), rules: cfg.RuleSet, header: make(http.Header)}
}

// append appends the description of a request. A request without a caller is decided on all the
// same, as it would be by the middleware; a hyphen takes the caller's place.
func (d *describer) append(dst []byte, e *accesslog.Entry) []byte {
	if d.caller = d.keys.append(d.caller[:0], e); len(d.caller) == 0 {
		d.caller = append(d.caller, '-')
	}
	dst = appendText(dst, string(d.caller))
	for _, desc := range d.rules.Set.RequestOf(d.rules.Domain, d.request(e),
		httplimit.RemoteAddr()).Descriptors {
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

// request returns the request as far as the log has it: the address, the method, the target, the
// user as the context value of that name, and of the combined format the referer and the user
// agent.
func (d *describer) request(e *accesslog.Entry) *http.Request {
	target := string(e.Path)
	if len(e.Query) > 0 {
		target += "?" + string(e.Query)
	}
	u, err := url.ParseRequestURI(target)
	if err != nil { // a server answers such a request without a look at its rules
		u = &url.URL{Path: string(e.Path), RawQuery: string(e.Query)}
	}
	clear(d.header)
	referer, agent := e.Combined()
	for name, value := range map[string]string{"Referer": referer, "User-Agent": agent} {
		if value != "" {
			d.header.Set(name, value)
		}
	}
	r := &http.Request{Method: string(e.Method), URL: u, Host: u.Host, Header: d.header,
		RemoteAddr: string(e.IP)}
	if len(e.User) > 0 {
		r = r.WithContext(rules.WithValue(r.Context(), "user", string(e.User)))
	}
	return r
}

func appendText(dst []byte, s string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(s))), s...)
}

var errDescription = errors.New("a description is damaged")

// description is a description that is read from its front.
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

// read reads descriptors into req, and uses its memory again.
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

// described is what was numbered, when all is read.
type described struct {
	names  []string // the descriptions, by code
	owners []uint32 // by code: the caller
	ranks  []uint32 // by code: the place in an order that does not depend on that of the lines
}

// divide makes descriptions of what r has numbered as callers, and numbers the callers that they
// are of.
func (r *run) divide() error {
	all := r.callers
	n := len(all.names)
	d := &described{names: all.names, owners: make([]uint32, n), ranks: make([]uint32, n)}
	r.callers = newCallers()
	for i, name := range all.names {
		rest := description(name)
		key := []byte(rest.text())
		owner, err := r.callers.number(key, maphash.Bytes(r.callers.seed, key))
		if err != nil {
			return err
		}
		d.owners[i] = owner
		r.callers.requests[owner] += all.requests[i]
	}
	order := make([]uint32, n)
	for i := range order {
		order[i] = uint32(i)
	}
	slices.SortFunc(order, func(a, b uint32) int { return strings.Compare(d.names[a], d.names[b]) })
	for place, i := range order {
		d.ranks[i] = uint32(place)
	}
	r.described = d
	return nil
}
