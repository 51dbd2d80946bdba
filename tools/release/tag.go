package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/mod/semver"
)

// repository is where the go command looks for the project's modules.
const repository = "https://github.com/weirgo/weir"

// A release makes a version of all modules of a tree.
type release struct {
	*Tree
	version string
}

// tag makes the release: a commit in which the modules require that version of each
// other, and a tag for each published module, those that others require first. It then downloads
// every module from the tags, as a user will, and takes back the tags and the commit if that fails.
// It pushes nothing.
func (r *release) tag() (tags []string, err error) {
	if r.version == "" || semver.Canonical(r.version) != r.version {
		return nil, fmt.Errorf("%q is not a version such as v0.2.0", r.version)
	}
	status, err := r.git("status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if status != "" {
		return nil, fmt.Errorf("there are uncommitted changes:\n%s", status)
	}
	before, err := r.git("rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, undo := r.git("reset", "-q", "--hard", before)
			for _, tag := range tags {
				_, untag := r.git("tag", "-d", tag)
				undo = errors.Join(undo, untag)
			}
			tags, err = nil, errors.Join(err, undo)
		}
	}()
	if err := r.commit(); err != nil {
		return nil, err
	}
	for _, m := range r.Published() {
		tag := strings.TrimPrefix(m.Dir+"/"+r.version, "./")
		if _, err := r.git("tag", "-a", "-m", m.Path+" "+r.version, tag); err != nil {
			return tags, err
		}
		tags = append(tags, tag)
	}
	return tags, r.check()
}

// commit commits the modules' requirements and the changelog's new heading.
func (r *release) commit() error {
	proxy, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(proxy) }()
	if err := errors.Join(r.dateChangelog(), pack(r.Tree, proxy, r.version)); err != nil {
		return err
	}
	_, err = r.git("commit", "-q", "-a", "-m", "release "+r.version)
	return err
}

const unreleased = "## Unreleased\n"

// dateChangelog gives what is unreleased a heading with the version and today's date.
func (r *release) dateChangelog() error {
	name := filepath.Join(r.Dir, "CHANGELOG.md")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, after, ok := strings.Cut(string(data), unreleased)
	if changes, _, _ := strings.Cut(after, "\n## "); !ok || strings.TrimSpace(changes) == "" {
		return errors.New("CHANGELOG.md has no changes under Unreleased")
	}
	heading := "\n## " + strings.TrimPrefix(r.version, "v") + " - " +
		time.Now().UTC().Format(time.DateOnly) + "\n"
	return os.WriteFile(name, []byte(before+unreleased+heading+after), 0o644)
}

// check downloads every published module from the tags. The sums must be those of go.sum.
func (r *release) check() (err error) {
	dir, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, m := range r.Published() {
		out, err := command(dir, r.directEnv(dir), "go", "mod", "download", "-json", m.Path+"@"+r.version)
		if err != nil {
			return err
		}
		var got struct{ Sum, GoModSum string }
		if err := json.Unmarshal(out, &got); err != nil {
			return err
		}
		for _, user := range r.Published() {
			if !r.requiredBy(user)[m.Path] {
				continue
			}
			_, own, err := r.readSums(user)
			if err != nil {
				return err
			}
			lines := strings.Join(own, "\n")
			if !strings.Contains(lines, got.Sum) || !strings.Contains(lines, got.GoModSum) {
				return fmt.Errorf("%s/go.sum has other sums of %s than its tag: %+v", user.Dir, m.Path, got)
			}
		}
	}
	return nil
}

// directEnv is the environment of a go command that takes the project's modules from the tree's own
// git repository, as if it were the public one.
func (r *release) directEnv(cache string) []string {
	return []string{
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GOMODCACHE=" + cache,
		// taken from the repository, and not looked up in the sum database
		"GOPRIVATE=github.com/weirgo/weir",
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url." + fileURL(r.Dir) + ".insteadOf", "GIT_CONFIG_VALUE_0=" + repository,
	}
}
