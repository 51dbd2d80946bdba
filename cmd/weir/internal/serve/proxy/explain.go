package proxy

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/serve/live"
	"github.com/weirgo/weir/cmd/weir/internal/serve/onredis"
	"github.com/weirgo/weir/fallback"
	"github.com/weirgo/weir/overload"
)

// explainer says why callers are denied, or are not.
type explainer struct{ p *Proxy }

// serve answers with the cli.Explained of a caller: a key, an address or, with rules, a
// descriptor. It counts nothing.
func (e explainer) serve(w http.ResponseWriter, r *http.Request) {
	p := e.p
	if r.FormValue("descriptor") != "" {
		if p.ruled == nil {
			http.Error(w, "there are no rules here, and so no descriptors", http.StatusBadRequest)
			return
		}
		p.ruled.ServeExplain(w, r, nil) // the denials are those of keys
		return
	}
	key, err := e.keyNamed(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	live.WriteJSON(w, e.explain(r.Context(), key))
}

// keyNamed returns the key that a request names: by its id, or as an entry of the deny list is
// written. An address stands for the key of its client.
func (e explainer) keyNamed(r *http.Request) (string, error) {
	cfg := &e.p.cfg
	if id := r.FormValue("id"); id != "" {
		return live.KeyOf(id)
	}
	text := r.FormValue("key")
	if text == "" {
		return "", errors.New("want a key")
	}
	entry, err := cli.Entry(text)
	switch {
	case err != nil:
		return "", err
	case entry.Key != "":
		return e.keyOf(entry.Key)
	}
	if cfg.By.text != "ip" || !entry.Prefix.IsSingleIP() {
		return e.keyOf(text)
	}
	return cfg.keyOfAddr(entry.Prefix.Addr())
}

// keyOf returns the key that text names: that of a caller who is known and shown so, which escapes
// what cannot be printed, or By.key of text.
func (e explainer) keyOf(text string) (string, error) {
	p, by := e.p, e.p.cfg.By
	if len(by.parts) < 2 && !strings.Contains(text, `\`) {
		return text, nil
	}
	known, _ := p.recent.callers(time.Now())
	top, _ := p.denials.Top(live.Counted)
	for _, o := range top {
		known[o.Key] = netip.Addr{}
	}
	if _, ok := known[text]; ok || by.split(text) != nil {
		return text, nil
	}
	for key := range known {
		if by.shown(key) == text {
			return key, nil
		}
	}
	return by.key(text)
}

// explain returns why the caller with a key is limited, or why it is not.
func (e explainer) explain(ctx context.Context, key string) *cli.Explained {
	p, now := e.p, time.Now()
	x := &cli.Explained{ID: live.ID(key), Name: p.cfg.By.shown(key), Now: now.UnixMilli(),
		Shadow: p.cfg.Guard.Shadow, Rules: p.ruled != nil}
	addr := addrOf(p, key)
	x.Exempt = addr.IsValid() && contain(p.cfg.Allow, addr)
	if entry, ok := p.denied.Lookup(key, addr); ok {
		l := p.denied.shown(entry, p.cfg.By)
		x.Listed = &l
	}
	if p.redis != nil {
		x.Alone = slices.ContainsFunc(p.redis.Hybrids(), func(h onredis.Hybrid) bool {
			return h.Stats().State != fallback.Closed
		})
	}
	if p.full != nil {
		look, err := p.full.Look(key, overload.Normal)
		x.Full = &cli.Full{Refuses: look.Refuses(), Says: look.Of(x.Name)}
		if err != nil {
			x.Full.Says = "not known: " + err.Error()
		}
	}
	for _, h := range p.held.limits {
		x.Limits = append(x.Limits, h.look(ctx, key, now))
	}
	p.denials.Explain(x, key)
	x.Sent = sentBy(p, key, now)
	x.Tell()
	return x
}

// addrOf returns the last address of a caller; the zero Addr if it is unknown.
func addrOf(p *Proxy, key string) netip.Addr {
	addr := p.recent.addr(key)
	if p.cfg.By.text == "ip" && !addr.IsValid() {
		if at, err := cli.Prefix(key); err == nil {
			return at.Addr()
		}
	}
	return addr
}
