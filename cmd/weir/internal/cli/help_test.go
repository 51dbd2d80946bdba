package cli

import (
	"bytes"
	"testing"

	"github.com/spf13/cobra"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHelpBeginsWithWhatIsNeededFirst(t *testing.T) {
	cmd := &cobra.Command{
		Use: "pour", Long: "Pour pours.\nAnd more.\n\nThe rest.", Run: func(*cobra.Command, []string) {},
		Example: "  pour a\n  pour b \\\n    c\n  pour d\n  pour e",
	}
	Help(cmd)
	cmd.Flags().Bool("z", false, "last")
	cmd.Flags().Bool("a", false, "first")
	Section(cmd, "One")
	cmd.Flags().Bool("b", false, "middle")
	Section(cmd, "Two")
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetArgs([]string{"--help"})
	require.NoError(t, cmd.Execute())
	assert.Equal(t, `Usage:
  pour [flags]

Pour pours.
And more.

Examples:
  pour a
  pour b \
    c

One:
      --z   last
      --a   first

Two:
      --b   middle

Flags:
  -h, --help   help for pour

The rest.

More examples:
  pour d
  pour e
`, out.String())
}
