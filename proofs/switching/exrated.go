package switching

import (
	"fmt"

	"github.com/weirgo/weir"
)

func afterExRated(limiter *weir.Limiter) (string, error) {
	res, err := limiter.CheckRate("my-rate-limited-api", 10_000, 5)
	switch {
	case err != nil:
		return "", err
	case !res.Allowed():
		return "{:error, 5}", nil
	}
	return fmt.Sprintf("{:ok, %d}", res.TotalRequests), nil
}
