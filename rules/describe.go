package rules

import (
	"net/http"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/rules/describe"
)

// Describers returns the rate_limits of a domain, which say how to describe HTTP requests. It
// returns nil if there are none.
func (s *Set) Describers(domain string) []describe.Describer {
	if d := s.domains[domain]; d != nil && d.limits != nil {
		return d.limits.describers
	}
	return nil
}

// RequestOf converts an HTTP request to a Request with the descriptors of the domain's rate_limits.
// ip finds the client's address.
func (s *Set) RequestOf(domain string, r *http.Request, ip httplimit.IP) *Request {
	x := describe.Request{Request: r, IP: ip, Lenient: true}
	return &Request{Domain: domain, Descriptors: s.describe(domain, s.Describers(domain), &x)}
}

// ExplainRequest is like [Set.RequestOf], but also returns a line for each descriptor, and for each
// of the domain's rate_limits without one: the actions, and the descriptor or which action has no
// entry. A request whose path cannot be read gets no descriptor with it.
func (s *Set) ExplainRequest(
	domain string, r *http.Request, ip httplimit.IP,
) (req *Request, lines []string) {
	x := describe.Request{Request: r, IP: ip}
	req = &Request{Domain: domain}
	for _, by := range s.Describers(domain) {
		before := len(req.Descriptors)
		var missing string
		req.Descriptors, missing = s.describeBy(req.Descriptors, domain, &by, &x)
		for _, d := range req.Descriptors[before:] {
			lines = append(lines, by.String()+": "+FormatEntries(d.Entries))
		}
		if missing != "" {
			lines = append(lines, by.String()+": no descriptor, since the request lacks what "+missing+
				" needs")
		}
	}
	return req, lines
}

// describe returns the descriptors that the describers make of a request to a domain.
func (s *Set) describe(
	domain string, all []describe.Describer, r *describe.Request,
) (to []Descriptor) {
	for i := range all {
		to, _ = s.describeBy(to, domain, &all[i], r)
	}
	return to
}

// describeBy appends the descriptors of one describer, or returns what Describe says is missing.
func (s *Set) describeBy(
	to []Descriptor, domain string, by *describe.Describer, r *describe.Request,
) (all []Descriptor, missing string) {
	path := func(entries []Entry) string {
		if rule := s.Match(domain, entries); rule != nil {
			return rule.Path
		}
		return ""
	}
	missing = by.Describe(r, path, func(entries []Entry) {
		to = append(to, Descriptor{Entries: entries, Hits: by.Hits, HasHits: by.HasHits})
	})
	return to, missing
}
