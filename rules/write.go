package rules

import (
	"maps"

	"go.yaml.in/yaml/v4"
)

// The shape of a rules file, for writing.
type (
	yamlDomain struct {
		Domain      string           `yaml:"domain"`
		Descriptors []yamlDescriptor `yaml:"descriptors,omitempty"`
		RateLimits  *yaml.Node       `yaml:"rate_limits,omitempty"`
	}

	yamlDescriptor struct {
		Key            string           `yaml:"key"`
		Value          any              `yaml:"value,omitempty"`
		RateLimit      *yamlLimit       `yaml:"rate_limit,omitempty"`
		ShadowMode     bool             `yaml:"shadow_mode,omitempty"`
		QuotaMode      bool             `yaml:"quota_mode,omitempty"`
		DetailedMetric bool             `yaml:"detailed_metric,omitempty"`
		ValueToMetric  bool             `yaml:"value_to_metric,omitempty"`
		ShareThreshold bool             `yaml:"share_threshold,omitempty"`
		Metadata       map[string]any   `yaml:"metadata,omitempty"`
		Descriptors    []yamlDescriptor `yaml:"descriptors,omitempty"`
	}

	yamlLimit struct {
		Name       string              `yaml:"name,omitempty"`
		Unlimited  bool                `yaml:"unlimited,omitempty"`
		Requests   *uint32             `yaml:"requests_per_unit,omitempty"`
		Unit       string              `yaml:"unit,omitempty"`
		Multiplier uint32              `yaml:"unit_multiplier,omitempty"`
		Lease      string              `yaml:"lease,omitempty"`
		Replaces   []map[string]string `yaml:"replaces,omitempty"`
	}
)

// YAML returns the rules as one file, with one document for each domain and one for its
// rate_limits, in the order of loading. Loading it gives an equal Set. Comments are lost.
func (s *Set) YAML() ([]byte, error) {
	var docs []yamlDomain
	for _, d := range s.order {
		docs = append(docs, yamlDomain{Domain: d.name, Descriptors: d.root.yaml()})
		if limits := d.requestYAML(); limits != nil {
			docs = append(docs, yamlDomain{Domain: d.name, RateLimits: limits})
		}
	}
	return yaml.Dump(docs, yaml.WithAllDocuments())
}

func (l *level) yaml() []yamlDescriptor {
	var list []yamlDescriptor
	for _, n := range l.nodes {
		list = append(list, yamlDescriptor{
			Key: n.key, Value: n.yamlValue(), RateLimit: n.yamlLimit(),
			ShadowMode: n.shadow, QuotaMode: n.quota, ShareThreshold: n.share,
			DetailedMetric: n.detailedMetric, ValueToMetric: n.valueToMetric,
			Metadata: n.yamlMetadata(), Descriptors: n.level.yaml(),
		})
	}
	return list
}

func (n *node) yamlValue() any {
	switch {
	case n.form == prefixed:
		return map[string]string{"prefix": n.pattern.prefix}
	case n.form == inRange:
		return map[string]string{"cidr": n.pattern.cidr.String()}
	case n.value == "":
		return nil
	}
	return n.value
}

func (n *node) yamlLimit() *yamlLimit {
	if n.rule == nil {
		return nil
	}
	l := &n.rule.Limit
	y := &yamlLimit{Name: l.Name, Unlimited: l.Unlimited}
	if !l.Unlimited {
		y.Requests, y.Unit = &l.Requests, l.Unit.String()
		if l.Multiplier > 1 {
			y.Multiplier = l.Multiplier
		}
		if l.Algorithm == InFlight {
			y.Unit, y.Lease = inFlightUnit, l.Lease.String()
		}
	}
	for _, name := range n.rule.Replaces {
		y.Replaces = append(y.Replaces, map[string]string{"name": name})
	}
	return y
}

func (n *node) yamlMetadata() map[string]any {
	m := n.metadata
	if n.rule == nil {
		return m
	}
	own := make(map[string]any)
	if a := n.rule.Limit.Algorithm; a != FixedWindow && a != InFlight {
		own["algorithm"] = a.String()
	}
	if burst := n.rule.Limit.Burst; burst > 0 {
		own["burst"] = burst
	}
	if c := n.rule.Limit.Calendar; c != (Calendar{}) {
		own["calendar"] = c.yaml()
	}
	if n.rule.Limit.Afterwards {
		own["costs"] = costsAfterwards
	}
	if len(own) == 0 {
		return m
	}
	m = maps.Collect(maps.All(m)) // it may be nil
	m[ownKey] = own
	return m
}
