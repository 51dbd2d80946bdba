package rules

import (
	"math"
	"strings"
	"time"

	"github.com/weirgo/weir/internal/core/bounds"
)

// inFlightUnit is the unit of a rule that limits how many requests are in flight at one time.
const inFlightUnit = "in_flight"

// defaultLease is the lease of a rule without one.
const defaultLease = time.Minute

// limitParser reads the rate_limit of a rule.
type limitParser struct {
	*reader
	rule *Rule
	key  position // of the rate_limit
}

// read reads the fields of a rate_limit.
func (p *limitParser) read(in fields) {
	p.rule.Limit.Unlimited = p.flag(in.get("unlimited"))
	p.rule.Limit.Name, _ = p.str(in.get("name"))
	p.unit(in.get("unit"))
	p.inFlight(in.get("unit_multiplier"), in.get("lease"))
	p.multiplier(in.get("unit_multiplier"))
	p.requests(in.get("requests_per_unit"))
	p.replaces(in.get("replaces"))
}

func (p *limitParser) unit(f *field) {
	limit := &p.rule.Limit
	at := p.key
	if f != nil {
		at = p.at(f.value)
	}
	name, ok := p.str(f)
	u := unitOf(name)
	known := u.valid()
	inFlight := strings.EqualFold(name, inFlightUnit)
	switch {
	case !ok:
	case limit.Unlimited && (known || inFlight):
		p.errorf(at, "should not specify rate limit unit when unlimited")
	case limit.Unlimited && name != "":
		p.warnf(at, "unit '%s' has no effect: the rule is unlimited", name)
	case inFlight:
		limit.Algorithm = InFlight
		if p.envoy {
			p.warnf(at, "not portable: Envoy's service refuses the unit %s", inFlightUnit)
		}
	case !limit.Unlimited && !known:
		p.errorf(at, "invalid rate limit unit '%s'%s", name, meantUnit(name))
	case known:
		limit.Unit = u
	}
}

func (p *limitParser) multiplier(f *field) {
	limit := &p.rule.Limit
	if f == nil || limit.Algorithm == InFlight { // as is reported
		return
	}
	n, ok := p.count(f, math.MaxUint32)
	switch {
	case !ok:
	case limit.Unlimited:
		p.warnf(p.at(f.key), "unit_multiplier has no effect: the rule is unlimited")
	case n == 0:
		p.errorf(p.at(f.value), "unit_multiplier must be at least 1")
	default:
		limit.Multiplier = uint32(n)
		if limit.Period() > bounds.MaxDuration {
			p.errorf(p.at(f.value), "%d %ss are longer than 365 days", n, limit.Unit)
		}
	}
	p.portableKey(f)
}

func (p *limitParser) requests(f *field) {
	limit := &p.rule.Limit
	n, ok := p.count(f, math.MaxUint32)
	limit.Requests = uint32(n)
	switch {
	case !ok:
	case limit.Unlimited && f != nil:
		p.warnf(p.at(f.key), "requests_per_unit has no effect: the rule is unlimited")
		limit.Requests = 0
	case limit.Unlimited:
	case f == nil:
		p.warnf(p.key, "requests_per_unit is missing and defaults to 0: the rule denies everything")
	case limit.Requests == 0:
		p.warnf(p.at(f.value), "requests_per_unit is 0: the rule denies everything")
	}
}

func (p *limitParser) replaces(f *field) {
	for _, n := range p.listOf(f) {
		at := p.at(n)
		f := p.mapping(n, "replaces", replacesKeys).get("name")
		if f != nil {
			at = p.at(f.value)
		}
		name, ok := p.str(f)
		switch {
		case !ok:
		case name == "":
			p.errorf(at, "should not have an empty replaces entry")
		case name == p.rule.Limit.Name:
			p.errorf(at, "replaces should not contain name of same descriptor")
		default:
			p.rule.Replaces = append(p.rule.Replaces, name)
			p.rule.replacesAt = append(p.rule.replacesAt, at)
		}
	}
}

// inFlight reads the lease of a rule, and checks that it has no field of another unit. A field that
// is nil is not in the file.
func (p *limitParser) inFlight(multiplier, lease *field) {
	limit := &p.rule.Limit
	if limit.Algorithm != InFlight {
		if lease != nil && (limit.Unlimited || limit.Unit.valid()) {
			p.errorf(p.at(lease.key), "lease applies to the unit %s only", inFlightUnit)
		}
		return
	}
	limit.Lease = defaultLease
	if multiplier != nil {
		p.errorf(p.at(multiplier.key), "unit_multiplier does not apply to the unit %s", inFlightUnit)
	}
	text, ok := p.str(lease)
	of, err := time.ParseDuration(text)
	switch {
	case lease == nil || !ok:
	case err != nil:
		p.errorf(p.at(lease.value), "lease is %s; want a duration such as 60s or 5m", brief(lease.value))
	case !bounds.Duration(of):
		p.errorf(p.at(lease.value), "lease is %s; want whole milliseconds, from 1ms to 365 days",
			brief(lease.value))
	default:
		limit.Lease = of
	}
}

// shortUnits are units by their common abbreviations in the singular.
var shortUnits = map[string]string{
	"sec": "second", "m": "minute", "min": "minute", "h": "hour", "hr": "hour",
	"d": "day", "w": "week", "wk": "week", "mo": "month", "mon": "month", "y": "year", "yr": "year"}

// meantUnit returns the end of a message about an unknown unit.
func meantUnit(name string) string {
	short := strings.ToLower(name)
	unit := shortUnits[strings.TrimSuffix(short, "s")]
	if short == "s" {
		unit = "second"
	}
	if unit != "" {
		return "; did you mean '" + unit + "'?"
	}
	return oneOf(name, unitNames)
}
