package live

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/screen"
	"github.com/weirgo/weir/rules"
)

// The handlers below show and change the counts of a client. The servers put them behind a Gate.

// ServeReload loads the rules again. It answers with their version, or with 422 and the mistakes.
func (r *Rules) ServeReload(w http.ResponseWriter, _ *http.Request) {
	if err := r.Reload(); err != nil {
		http.Error(w, err.Error(), http.StatusUnprocessableEntity)
		return
	}
	s := r.Status()
	WriteJSON(w, map[string]any{"version": s.Version, "rules": s.Rules})
}

// named returns the domain and the text of the descriptor that a request names: by these two, or as
// the page shows them, "DOMAIN: DESCRIPTOR", by its key or its ID.
func (r *Rules) named(req *http.Request) (domain, text string, err error) {
	domain, text = req.FormValue("domain"), req.FormValue("descriptor")
	if text != "" {
		return domain, text, nil
	}
	text = req.FormValue("key")
	if id := req.FormValue("id"); id != "" {
		text, err = KeyOf(id)
	}
	for _, d := range r.Engine.Set().Domains() {
		if rest, ok := strings.CutPrefix(text, d+": "); ok {
			return d, rest, err
		}
	}
	return domain, text, err
}

// caller parses the descriptor that a request names; if all is set there may be none. The domain
// may be omitted if there is only one.
func (r *Rules) caller(
	w http.ResponseWriter, req *http.Request, all bool,
) (domain string, entries []rules.Entry, ok bool) {
	domain, text, err := r.named(req)
	if err == nil && (text != "" || !all) {
		entries, err = rules.ParseEntries(text)
	}
	if domains := r.Engine.Set().Domains(); domain == "" && len(domains) == 1 {
		domain = domains[0]
	}
	if err == nil && domain == "" {
		err = errors.New("want ?domain=DOMAIN&descriptor=KEY=VALUE,…")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return "", nil, false
	}
	return domain, entries, true
}

// ServeExplain answers with the cli.Explained of a descriptor, and counts nothing. The denials may
// be nil.
func (r *Rules) ServeExplain(w http.ResponseWriter, req *http.Request, denials *Denials) {
	domain, entries, ok := r.caller(w, req, false)
	if !ok {
		return
	}
	resp, err := r.Engine.Decide(req.Context(), &rules.Request{
		Domain: domain, Descriptors: []rules.Descriptor{{Entries: entries, HasHits: true}},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	name, now := rules.FormatEntries(entries), time.Now()
	answer := cli.Explained{
		Name: screen.Printable(name), Now: now.UnixMilli(),
		Shadow: r.cfg.Engine.Shadow,
		Steps:  screen.Lines(r.Engine.Set().Explain(domain, entries)),
	}
	if s := &resp.Statuses[0]; s.Rule != nil {
		held := cli.Held{Name: screen.Printable(s.Rule.Path), Limit: s.Rule.Limit.String(),
			Counting: s.Rule.Limit.Algorithm.String(), AtOnce: s.Rule.Limit.AtOnce(),
			Left: s.Remaining}
		if !s.Rule.Limit.Unlimited {
			most := cmp.Or(s.Rule.Limit.Burst, uint64(s.Rule.Limit.Requests))
			held.Used = most - min(most, held.Left)
		}
		switch {
		case s.Reason == rules.Shadowed: // it passes
		case s.Rule.Limit.Requests == 0 && !s.Rule.Limit.Unlimited:
			held.Never = true
		case s.Reason == rules.Over || held.Left == 0:
			held.Passes = now.Add(time.Duration(s.ResetSeconds()) * time.Second).UnixMilli()
		}
		answer.Limits = []cli.Held{held}
	}
	if denials != nil {
		denials.Explain(&answer, domain+": "+name)
	}
	answer.Tell()
	WriteJSON(w, answer)
}

// ServeReset deletes the count of a descriptor.
func (r *Rules) ServeReset(w http.ResponseWriter, req *http.Request) {
	domain, entries, ok := r.caller(w, req, false)
	if !ok {
		return
	}
	found, err := r.Engine.Reset(req.Context(), domain, entries)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		http.Error(w, err.Error(), http.StatusNotImplemented)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	case !found:
		http.Error(w, "No rule limits this descriptor.", http.StatusNotFound)
	default:
		r.cfg.Log.Info("caller reset", "domain", domain, "descriptor", rules.FormatEntries(entries))
		WriteJSON(w, map[string]any{"reset": true})
	}
}

// ServeResetAll deletes the counts of the descriptors that begin with a descriptor, as
// rules.Engine.ResetAll does; without one, all of the domain. It answers with a cli.Progress on a
// line every second, and ends if the client disconnects.
func (r *Rules) ServeResetAll(w http.ResponseWriter, req *http.Request) {
	domain, entries, ok := r.caller(w, req, true)
	if !ok {
		return
	}
	w.Header().Set("Content-Type", "application/x-ndjson")
	lines, last := json.NewEncoder(w), time.Now()
	end := cli.Progress{Done: true}
	n, err := r.Engine.ResetAll(req.Context(), domain, entries, func(seen, reset int) {
		end.Seen = seen
		if time.Since(last) >= time.Second {
			last = time.Now()
			_ = lines.Encode(cli.Progress{Seen: seen, Reset: reset}) // an error ends the request's context
			_ = http.NewResponseController(w).Flush()
		}
	})
	end.Reset = n
	if err != nil {
		end.Done, end.Error = false, err.Error()
	}
	r.cfg.Log.Info("callers reset", "domain", domain,
		"descriptor", rules.FormatEntries(entries), "counts", n, "error", end.Error)
	_ = lines.Encode(end)
}

// WriteJSON answers with v in JSON.
func WriteJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an error means that the client disconnected
}
