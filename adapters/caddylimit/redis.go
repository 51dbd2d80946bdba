package caddylimit

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/caddyserver/caddy/v2"
)

// Redis says where several Caddys count together, and what becomes of decisions while it is down.
type Redis struct {
	// URL is redis://[user:password@]host[:port][/database], rediss:// for TLS, or unix://. It may
	// have global placeholders: redis://:{env.REDIS_PASSWORD}@10.0.0.3. They are replaced when the
	// configuration is loaded, and one that is empty or unknown is an error.
	URL string `json:"url"`

	// Prefix begins every key on Redis. Default: weir:
	Prefix string `json:"prefix,omitempty"`

	// Timeout is how long a decision may wait for Redis. Default: 50ms.
	Timeout caddy.Duration `json:"timeout,omitempty"`

	// Instances is how many Caddys share the limits: without Redis, each has one such part. Default:
	// 1.
	Instances int `json:"instances,omitempty"`

	// OnFailure selects how requests are decided without Redis: local continues from the last known
	// count and charges Redis later, open admits all, closed admits none. Default: local.
	OnFailure string `json:"on_failure,omitempty"`
}

func (r *Redis) check() error {
	_, err := choose("on_failure", r.OnFailure, onFailures)
	switch {
	case r.URL == "":
		return errors.Join(err, errors.New("redis has no URL: want redis://host:port"))
	case r.Instances < 0, r.Timeout < 0:
		return errors.Join(err, errors.New("redis: instances and timeout are not negative"))
	}
	return err
}

// set sets an option.
func (r *Redis) set(name, text string) (err error) {
	switch name {
	case "prefix":
		r.Prefix = text
	case "timeout":
		r.Timeout, err = duration(text)
	case "instances":
		r.Instances, err = strconv.Atoi(text)
	case "on_failure":
		r.OnFailure = text
		_, err = choose(name, text, onFailures)
	default:
		return fmt.Errorf("redis has no option %q: want prefix, timeout, instances or on_failure", name)
	}
	return err
}
