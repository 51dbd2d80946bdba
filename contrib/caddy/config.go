package caddylimit

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirgo/weir/httplimit"
)

// The names in the configuration, the default first.
var (
	strategies   = []string{"sliding", "fixed", "log", "token"}
	headerStyles = []string{"draft", "legacy", "none"}
	onFailures   = []string{"local", "open", "closed"}
)

// choose returns the index of name in names; the empty name is the first.
func choose(what, name string, names []string) (int, error) {
	if name == "" {
		return 0, nil
	}
	if i := slices.Index(names, name); i >= 0 {
		return i, nil
	}
	return 0, fmt.Errorf("there is no %s %q: want %s", what, name, strings.Join(names, ", "))
}

// check reports what httplimit does not, and what the Caddyfile's parser should report with its
// line.
func (h *Handler) check() error {
	_, strategyErr := choose("strategy", h.Strategy, strategies)
	_, headersErr := choose("style of headers", h.Headers, headerStyles)
	var errs []error
	if h.Burst != 0 && h.Strategy != "token" {
		errs = append(errs, errors.New("burst is for strategy token"))
	}
	if len(h.Limits) == 0 {
		errs = append(errs, errors.New("no limit: want one such as 100/1m"))
	}
	if h.MaxBuckets < 0 {
		errs = append(errs, fmt.Errorf("max_buckets is %d", h.MaxBuckets))
	}
	for _, text := range h.Key {
		errs = append(errs, checkKey(text))
	}
	if h.Redis != nil {
		errs = append(errs, h.Redis.check())
	}
	if err := errors.Join(append(errs, strategyErr, headersErr)...); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}

func checkKey(text string) error {
	if text == "ip" || text == "all" || strings.Contains(text, "{") {
		return nil
	}
	return fmt.Errorf("there is no key %q: want ip, all or a {placeholder}", text)
}

// config returns the handler's configuration of httplimit.
func (h *Handler) config() (httplimit.Config, error) {
	style, err := choose("style of headers", h.Headers, headerStyles)
	if err != nil {
		return httplimit.Config{}, err
	}
	cfg := httplimit.Config{
		Extractor: extractor(h.Key), MaxKeysPerClient: h.MaxKeys,
		Headers: []httplimit.HeaderStyle{httplimit.HeadersDraft, httplimit.HeadersLegacy,
			httplimit.HeadersNone}[style],
		DeniedStatus: h.Status, Jitter: time.Duration(h.Jitter), FailOpen: h.FailOpen, Shadow: h.Shadow,
		Respond: refuse, OnDecision: report, Now: now,
	}
	for _, l := range h.Limits {
		cfg.Policies = append(cfg.Policies, httplimit.Policy{Name: l.name(), Limit: l.Limit,
			Duration: time.Duration(l.Period)})
	}
	cfg.DenyList, err = denyList(h.Deny)
	return cfg, err
}

// name returns the Name, or the limit as people write it. It is never left to httplimit, which
// gives a default name on one Strategy only once: a configuration that is loaded again would be the
// second.
func (l Limit) name() string {
	if l.Name != "" {
		return l.Name
	}
	period := time.Duration(l.Period).String()
	if strings.HasSuffix(period, "m0s") {
		period = strings.TrimSuffix(period, "0s")
	}
	if strings.HasSuffix(period, "h0m") {
		period = strings.TrimSuffix(period, "0m")
	}
	return strconv.FormatUint(l.Limit, 10) + "/" + period
}

// denyList returns the list of these addresses, prefixes and keys; nil if there are none.
func denyList(entries []string) (*httplimit.DenyList, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	list := httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: len(entries), Now: now})
	for _, text := range entries {
		entry := httplimit.Entry{Key: text}
		if addr, err := netip.ParseAddr(text); err == nil {
			entry = httplimit.Entry{Prefix: netip.PrefixFrom(addr, addr.BitLen())}
		} else if prefix, err := netip.ParsePrefix(text); err == nil {
			entry = httplimit.Entry{Prefix: prefix}
		}
		if err := list.Add(entry); err != nil {
			return nil, fmt.Errorf("weir: deny %q: %w", text, err)
		}
	}
	return list, nil
}

// extractor returns the Extractor for the parts of a key.
func extractor(parts []string) httplimit.Extractor {
	var all []httplimit.Extractor
	for _, text := range parts {
		switch text {
		case "ip":
			all = append(all, httplimit.RemoteAddr()) // of the copy that the guard sees
		case "all":
			all = append(all, constant("all"))
		default:
			all = append(all, placeholders(text))
		}
	}
	switch len(all) {
	case 0:
		return httplimit.RemoteAddr()
	case 1:
		return all[0]
	}
	return httplimit.Join(all...)
}

func constant(key string) httplimit.Extractor {
	return httplimit.ExtractorFunc(func(*http.Request) (string, error) { return key, nil })
}

// placeholders returns the Extractor that replaces the placeholders in text.
func placeholders(text string) httplimit.Extractor {
	return httplimit.ExtractorFunc(func(r *http.Request) (string, error) {
		repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
		if !ok {
			return "", fmt.Errorf("%w: the request has no placeholders", httplimit.ErrKey)
		}
		key, err := repl.ReplaceOrErr(text, true, true)
		if err != nil {
			return "", fmt.Errorf("%w: %w", httplimit.ErrKey, err)
		}
		return key, nil
	})
}
