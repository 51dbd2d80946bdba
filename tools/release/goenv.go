package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
)

// goEnv is the environment of a go command that finds the project's modules in proxy only, keeps
// them in the module cache of its own, and finds all others in the user's module cache, if they are
// there.
func goEnv(proxy, cache string) ([]string, error) {
	out, err := command(".", nil, "go", "env", "GOMODCACHE", "GOPROXY")
	if err != nil {
		return nil, err
	}
	user, upstream, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	proxies := []string{fileURL(proxy), fileURL(filepath.Join(user, "cache", "download")), upstream}
	return []string{
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GOPRIVATE=", "GONOPROXY=",
		"GONOSUMDB=github.com/weirgo/weir", "GOSUMDB=off", // the user's module cache is verified
		"GOMODCACHE=" + cache,
		"GOPROXY=" + strings.Join(proxies, ","),
	}, nil
}

func fileURL(dir string) string { return "file://" + filepath.ToSlash(dir) }

// tidy runs go mod tidy in every module, in which it finds the versions of each other that they
// require. It goes on after a failure.
func tidy(t *Tree) error {
	return t.inCopy(func(dir string, copied *Tree) error {
		version, err := copied.version()
		if err != nil {
			return err
		}
		proxy := filepath.Join(dir, "proxy")
		if err := pack(copied, proxy, version); err != nil {
			return err
		}
		env, err := goEnv(proxy, filepath.Join(dir, "modules"))
		if err != nil {
			return err
		}
		var failed []error
		for _, m := range copied.Modules {
			_, err := command(filepath.Join(copied.Dir, m.Dir), env, "go", "mod", "tidy")
			if err == nil {
				err = takeSums(t, copied, m)
			}
			if err != nil {
				failed = append(failed, fmt.Errorf("%s: %w", m.Dir, err))
			}
		}
		return errors.Join(failed...)
	})
}

// takeSums copies go.mod and go.sum of m to a tree from its copy, but for the sums of the project's
// own modules: they are those of releases.
func takeSums(t, copied *Tree, m *Module) error {
	if err := copyFile(filepath.Join(copied.Dir, m.Dir, "go.mod"),
		filepath.Join(t.Dir, m.Dir, "go.mod")); err != nil {
		return err
	}
	_, own, err := t.readSums(m)
	if err != nil {
		return err
	}
	others, _, err := copied.readSums(m)
	if err != nil {
		return err
	}
	return t.writeSums(m, append(others, own...))
}
