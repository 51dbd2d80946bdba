package caddylimit

import (
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
	"github.com/weirgo/weir/internal/doors/clientaddr"
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
