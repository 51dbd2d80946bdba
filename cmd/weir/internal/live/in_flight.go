package live

import (
	"errors"
	"fmt"

	"github.com/weirgo/weir/rules"
)

// RefuseInFlight returns an error for each rule that limits requests in flight, in one domain or,
// if that is empty, in all. why says what is missing here.
func RefuseInFlight(set *rules.Set, domain, why string) error {
	var errs []error
	for r := range set.All() {
		if r.Limit.Algorithm == rules.InFlight && (domain == "" || r.Domain == domain) {
			errs = append(errs, fmt.Errorf("%s:%d:%d: %s: %s", r.File, r.Line, r.Column, r.Path, why))
		}
	}
	return errors.Join(errs...)
}
