package rules

import "go.yaml.in/yaml/v4"

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
