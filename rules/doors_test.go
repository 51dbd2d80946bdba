package rules_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirgo/weir/internal/testkit/doortest"
	"github.com/weirgo/weir/rules"
)

func TestTheDoorOfRules(t *testing.T) {
	doortest.Run(t, "..", doortest.Door{
		Name: "rules",
		Open: func(t *testing.T, s *doortest.Setup) func(...string) doortest.Answer {
			l := doortest.Limiter(t)
			engine, err := rules.New(load(t, doortest.Rules),
				rules.Config{Strategies: rules.StrategiesOf(l)})
			require.NoError(t, err)
			t.Cleanup(func() { assert.NoError(t, engine.Close()) })
			return doortest.Through(t, rules.Middleware(engine, s.Guard(l))(s.Handler()))
		},
	})
}
