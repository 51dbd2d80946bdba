package cli

import (
	"cmp"
	"fmt"
	"os"
	"strings"
)

// Secret returns the text of the file that a flag names, or else of an environment variable. The
// text is not a flag itself: all users of a machine can read the arguments of a process.
func Secret(flag, file, variable string) (string, error) {
	if file == "" {
		return strings.TrimSpace(os.Getenv(variable)), nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("--%s: %w", flag, err)
	}
	s := strings.TrimSpace(string(text))
	if s == "" {
		return "", fmt.Errorf("--%s: the file %s is empty", flag, file)
	}
	return s, nil
}

// minToken is the length of the shortest admin token: 16 random characters cannot be guessed.
const minToken = 16

// AdminToken returns the token that a server asks for; empty if none is given.
func AdminToken(file string) (string, error) {
	token, err := Secret("admin-token-file", file, "WEIR_ADMIN_TOKEN")
	if n := len(token); err == nil && 0 < n && n < minToken {
		return "", fmt.Errorf("the admin token in %s is too short: it has %d bytes; want at least %d, "+
			"such as those that \"openssl rand -hex 16\" prints", cmp.Or(file, "$WEIR_ADMIN_TOKEN"), n,
			minToken)
	}
	return token, err
}
