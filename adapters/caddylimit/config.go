package caddylimit

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/weirgo/weir/httplimit"
	"github.com/weirgo/weir/internal/core/bounds"
	"github.com/weirgo/weir/internal/doors/clientaddr"
	"github.com/weirgo/weir/internal/doors/weblimit"
	"github.com/weirgo/weir/overload"
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
	if len(h.Limits) == 0 && h.MaxInFlight == 0 && h.MaxInFlightPerClient == 0 && h.Overload == nil {
		errs = append(errs, errors.New("no limit: want one such as 100/1m, overload, or max_in_flight"))
	}
	if h.MaxBuckets < 0 {
		errs = append(errs, fmt.Errorf("max_buckets is %d", h.MaxBuckets))
	}
	for _, text := range h.Key {
		errs = append(errs, checkKey(text))
	}
	for _, text := range h.CountIf {
		_, err := statuses(text)
		errs = append(errs, err)
	}
	if h.MaxInFlight < 0 || h.MaxInFlightPerClient < 0 {
		errs = append(errs, errors.New("a bound on requests in flight is negative"))
	}
	errs = append(errs, checkClass(h), checkCost(h.Cost), checkBits("ipv4_prefix", h.IPv4Prefix, 32),
		checkBits("ipv6_prefix", h.IPv6Prefix, 128))
	if h.Redis != nil {
		errs = append(errs, h.Redis.check())
	}
	if err := errors.Join(append(errs, strategyErr, headersErr)...); err != nil {
		return fmt.Errorf("weir: %w", err)
	}
	return nil
}

// checkClass reports a Class that there is not, or that has no effect.
func checkClass(h *Handler) error {
	switch _, err := overload.ParseClass(h.Class); {
	case h.Overload != nil && h.Overload.Goal < 0:
		return fmt.Errorf("overload: the goal %v is negative", time.Duration(h.Overload.Goal))
	case h.Class == "":
		return nil
	case h.Overload == nil:
		return errors.New("class has no effect without overload")
	case err != nil && !strings.Contains(h.Class, "{"):
		return fmt.Errorf("class %q is neither sheddable, normal or critical nor a {placeholder}",
			h.Class)
	}
	return nil
}

// classOf returns the Class of a text; nil for normal.
func classOf(text string) func(*http.Request) overload.Class {
	if text == "" {
		return nil
	}
	replaced := placeholders(text)
	return func(r *http.Request) overload.Class {
		name, _ := replaced.Extract(r)
		class, _ := overload.ParseClass(name) // or normal
		return class
	}
}

func checkKey(text string) error {
	if text == "ip" || text == "all" || strings.Contains(text, "{") {
		return nil
	}
	return fmt.Errorf("there is no key %q: want ip, all or a {placeholder}", text)
}

// statuses reads a status such as 401, or a class such as 5xx, and returns the first and the last.
func statuses(text string) (of [2]int, err error) {
	digits, class := strings.CutSuffix(text, "xx")
	n, err := strconv.Atoi(digits)
	switch {
	case err == nil && class && 1 <= n && n <= 5:
		return [2]int{n * 100, n*100 + 99}, nil
	case err == nil && !class && 100 <= n && n <= 599:
		return [2]int{n, n}, nil
	}
	return of, fmt.Errorf("count_if: %q is not a status such as 401 or 5xx", text)
}

// countIf returns the CountIf of a list of statuses; nil if it is empty.
func countIf(list []string) func(status int) bool {
	if len(list) == 0 {
		return nil
	}
	var ranges [][2]int
	for _, text := range list {
		of, _ := statuses(text) // checked
		ranges = append(ranges, of)
	}
	return func(status int) bool {
		return slices.ContainsFunc(ranges, func(of [2]int) bool {
			return of[0] <= status && status <= of[1]
		})
	}
}

func checkCost(text string) error {
	if text == "" || strings.Contains(text, "{") {
		return nil
	}
	if n, err := strconv.ParseUint(text, 10, 63); err != nil || n == 0 {
		return fmt.Errorf("cost %q is neither a number from 1 nor a {placeholder}", text)
	}
	return nil
}

// costFunc returns the CostFunc of a cost; nil for 1.
func costFunc(text string) func(*http.Request) uint64 {
	if text == "" {
		return nil
	}
	replaced := placeholders(text)
	return func(r *http.Request) uint64 {
		if s, err := replaced.Extract(r); err == nil {
			if n, err := strconv.ParseUint(s, 10, 63); err == nil {
				return n
			}
		}
		return math.MaxUint64 // over every limit
	}
}

func checkBits(name string, bits, most int) error {
	if bits < 0 || bits > most {
		return fmt.Errorf("%s %d is not in 1 to %d", name, bits, most)
	}
	return nil
}

// config returns the handler's configuration of httplimit.
func (h *Handler) config() (httplimit.Config, error) {
	style, err := choose("style of headers", h.Headers, headerStyles)
	if err != nil {
		return httplimit.Config{}, err
	}
	cfg := httplimit.Config{
		Extractor: extractor(h.Key, h.address()), ClientIP: h.address(), MaxKeysPerClient: h.MaxKeys,
		CountIf: countIf(h.CountIf), CostFunc: costFunc(h.Cost),
		MaxInFlight: h.MaxInFlight,
		Headers: []httplimit.HeaderStyle{httplimit.HeadersDraft, httplimit.HeadersLegacy,
			httplimit.HeadersNone}[style],
		DeniedStatus: h.Status, Jitter: time.Duration(h.Jitter), FailOpen: h.FailOpen, Shadow: h.Shadow,
		Respond: weblimit.OnDenied(refuse), OnDecision: report, Now: now,
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
	numbers := strconv.FormatUint(l.Limit, 10) + "/" + bounds.Text(time.Duration(l.Period))
	return cmp.Or(l.Name, numbers)
}

// placesName returns the name of the limit MaxInFlightPerClient. Handlers that a request passes one
// after the other must not count it together.
func (h *Handler) placesName() string {
	const longest, suffix = 64, " in flight" // longest: of httplimit
	name := strconv.Itoa(h.MaxInFlightPerClient)
	if len(h.Limits) > 0 {
		name = h.Limits[0].name()
	}
	return name[:min(len(name), longest-len(suffix))] + suffix
}

// denyList returns the list of these addresses, prefixes and keys; nil if there are none.
func denyList(entries []string) (*httplimit.DenyList, error) {
	if len(entries) == 0 {
		return nil, nil
	}
	list := httplimit.NewDenyList(httplimit.DenyListConfig{MaxEntries: len(entries), Now: now})
	for _, text := range entries {
		entry := httplimit.DenyEntry{Key: text}
		if prefix, err := clientaddr.ParsePrefix(text); err == nil {
			entry = httplimit.DenyEntry{Prefix: prefix}
		}
		if err := list.Add(entry); err != nil {
			return nil, fmt.Errorf("weir: deny %q: %w", text, err)
		}
	}
	return list, nil
}

// address returns the Extractor of the client's address, of the request that the guard sees.
func (h *Handler) address() httplimit.IP {
	ip := httplimit.RemoteAddr()
	if h.IPv4Prefix > 0 {
		ip = ip.IPv4Bits(h.IPv4Prefix)
	}
	if h.IPv6Prefix > 0 {
		ip = ip.IPv6Bits(h.IPv6Prefix)
	}
	return ip
}

// extractor returns the Extractor for the parts of a key.
func extractor(parts []string, address httplimit.IP) httplimit.Extractor {
	var all []httplimit.Extractor
	for _, text := range parts {
		switch text {
		case "ip":
			all = append(all, address)
		case "all":
			all = append(all, constant("all"))
		default:
			all = append(all, placeholders(text))
		}
	}
	switch len(all) {
	case 0:
		return address
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
