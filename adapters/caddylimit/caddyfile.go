package caddylimit

import (
	"fmt"
	"strconv"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/weirgo/weir/internal/core/bounds"
)

// caddyfileReader reads a directive into h.
type caddyfileReader struct {
	h *Handler
	d *caddyfile.Dispenser
}

// read reads the whole directive.
func (c *caddyfileReader) read() error {
	c.d.Next() // the directive's name
	for _, text := range c.d.RemainingArgs() {
		if err := c.addLimit(text); err != nil {
			return c.d.WrapErr(err)
		}
	}
	for nesting := c.d.Nesting(); c.d.NextBlock(nesting); {
		if err := c.option(); err != nil {
			return err
		}
	}
	return nil
}

// option reads one line of the block.
func (c *caddyfileReader) option() error {
	h, d := c.h, c.d
	name := d.Val()
	switch name {
	case "limit", "key", "deny", "count_if":
		return c.list(name)
	case "shadow":
		h.Shadow = true
		return none(d)
	case "redis":
		return c.redis()
	case "overload":
		return c.overload()
	}
	text, err := one(d)
	if err != nil {
		return err
	}
	if err := c.set(name, text); err != nil {
		return d.WrapErr(err)
	}
	return nil
}

// overload reads the option of that name.
func (c *caddyfileReader) overload() (err error) {
	h, d := c.h, c.d
	h.Overload = &Overload{}
	args := d.RemainingArgs()
	switch len(args) {
	case 0:
		return nil
	case 1:
		h.Overload.Goal, err = duration(args[0])
		if err == nil && h.Overload.Goal <= 0 {
			err = fmt.Errorf("overload: the goal %s is not positive", args[0])
		}
		if err != nil {
			return d.WrapErr(err)
		}
		return nil
	}
	return d.ArgErr()
}

// list reads an option of several arguments.
func (c *caddyfileReader) list(name string) error {
	h, d := c.h, c.d
	args := d.RemainingArgs()
	if len(args) == 0 {
		return d.ArgErr()
	}
	for _, text := range args {
		var err error
		switch name {
		case "limit":
			err = c.addLimit(text)
		case "key":
			h.Key = append(h.Key, text)
			err = checkKey(text)
		case "count_if":
			h.CountIf = append(h.CountIf, text)
			_, err = statuses(text)
		case "deny":
			h.Deny = append(h.Deny, text)
			_, err = denyList(h.Deny)
		}
		if err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// set sets an option of one argument.
func (c *caddyfileReader) set(name, text string) (err error) {
	h := c.h
	numbers := map[string]*int{
		"status": &h.Status, "max_keys": &h.MaxKeys, "max_buckets": &h.MaxBuckets,
		"max_in_flight": &h.MaxInFlight, "max_in_flight_per_client": &h.MaxInFlightPerClient,
		"ipv4_prefix": &h.IPv4Prefix, "ipv6_prefix": &h.IPv6Prefix,
	}
	if n := numbers[name]; n != nil {
		*n, err = strconv.Atoi(text)
		return err
	}
	switch name {
	case "strategy":
		h.Strategy = text
		_, err = choose(name, text, strategies)
	case "burst":
		h.Burst, err = strconv.ParseUint(text, 10, 63)
	case "fail":
		var i int
		i, err = choose("way to "+name, text, []string{"closed", "open"})
		h.FailOpen = i == 1
	case "headers":
		h.Headers = text
		_, err = choose("style of headers", text, headerStyles)
	case "jitter":
		h.Jitter, err = duration(text)
	case "cost":
		h.Cost = text
		err = checkCost(text)
	case "class": // check looks at it beside overload
		h.Class = text
	default:
		return fmt.Errorf("there is no option %q: want limit, key, strategy, burst, deny, fail, "+
			"headers, status, jitter, max_keys, max_buckets, count_if, cost, overload, class, "+
			"max_in_flight, max_in_flight_per_client, ipv4_prefix, ipv6_prefix, shadow or redis", name)
	}
	return err
}

// redis reads the option of that name and its block.
func (c *caddyfileReader) redis() error {
	h, d := c.h, c.d
	url, err := one(d)
	if err != nil {
		return err
	}
	if h.Redis != nil {
		return d.Err("a handler has one redis")
	}
	h.Redis = &Redis{URL: url}
	for nesting := d.Nesting(); d.NextBlock(nesting); {
		name := d.Val()
		text, err := one(d)
		if err != nil {
			return err
		}
		if err := h.Redis.set(name, text); err != nil {
			return d.WrapErr(err)
		}
	}
	return nil
}

// addLimit reads [NAME=]COUNT/PERIOD.
func (c *caddyfileReader) addLimit(text string) error {
	l, err := parseLimit(text)
	if err != nil {
		return err
	}
	for _, other := range c.h.Limits {
		if other.name() == l.name() {
			return fmt.Errorf("limit %q: there are two of the name %q", text, l.name())
		}
	}
	c.h.Limits = append(c.h.Limits, l)
	return nil
}

// duration reads a duration as Caddy does. Its 1 may be left out: m is 1m.
func duration(text string) (caddy.Duration, error) {
	if text != "" && text[0] >= 'a' && text[0] <= 'z' {
		text = "1" + text
	}
	d, err := caddy.ParseDuration(text)
	return caddy.Duration(d), err
}

// one reads the only argument of an option.
func one(d *caddyfile.Dispenser) (text string, err error) {
	if !d.NextArg() {
		return "", d.ArgErr()
	}
	text = d.Val()
	return text, none(d)
}

// none makes sure that no argument follows.
func none(d *caddyfile.Dispenser) error {
	if d.NextArg() {
		return d.ArgErr()
	}
	return nil
}

// namesKey is the adaptation's list of names that were made of periods.
const namesKey = "weir.default_names"

// parseDirective reads a directive and names the limits that have no name. It refuses two such
// limits for one period: whether they share budgets is for the author to say.
func parseDirective(helper httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
	h := new(Handler)
	if err := h.UnmarshalCaddyfile(helper.Dispenser); err != nil {
		return nil, err
	}
	names, ok := helper.State[namesKey].(map[string]bool)
	if !ok {
		names = make(map[string]bool)
		helper.State[namesKey] = names
	}
	for i := range h.Limits {
		l := &h.Limits[i]
		if l.Name != "" {
			continue
		}
		l.Name = bounds.Text(time.Duration(l.Period))
		if names[l.Name] {
			return nil, helper.Errf("there are two limits for a period of %[1]s: give each a name, such as "+
				"login=%[2]d/%[1]s and search=%[2]d/%[1]s, or both the same one to share budgets", l.Name,
				l.Limit)
		}
		names[l.Name] = true
	}
	return h, nil
}
