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

// Tag makes the release of version: a commit in which the modules require that version of each
// other, and a tag for each published module, those that others require first. It then downloads
// every module from the tags, as a user will, and takes back the tags and the commit if that fails.
// It pushes nothing.
func (t *Tree) Tag(version string) (tags []string, err error) {
	if version == "" || semver.Canonical(version) != version {
		return nil, fmt.Errorf("%q is not a version such as v0.2.0", version)
	}
	status, err := t.git("status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if status != "" {
		return nil, fmt.Errorf("there are uncommitted changes:\n%s", status)
	}
	before, err := t.git("rev-parse", "HEAD")
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_, undo := t.git("reset", "-q", "--hard", before)
			for _, tag := range tags {
				_, untag := t.git("tag", "-d", tag)
				undo = errors.Join(undo, untag)
			}
			tags, err = nil, errors.Join(err, undo)
		}
	}()
	if err := t.commit(version); err != nil {
		return nil, err
	}
	for _, m := range t.Published() {
		tag := strings.TrimPrefix(m.Dir+"/"+version, "./")
		if _, err := t.git("tag", "-a", "-m", m.Path+" "+version, tag); err != nil {
			return tags, err
		}
		tags = append(tags, tag)
	}
	return tags, t.check(version)
}

// commit commits the modules' requirements and the changelog's new heading.
func (t *Tree) commit(version string) error {
	proxy, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(proxy) }()
	if err := errors.Join(t.dateChangelog(version), t.Pack(proxy, version)); err != nil {
		return err
	}
	_, err = t.git("commit", "-q", "-a", "-m", "release "+version)
	return err
}

const unreleased = "## Unreleased\n"

// dateChangelog gives what is unreleased a heading with the version and today's date.
func (t *Tree) dateChangelog(version string) error {
	name := filepath.Join(t.Dir, "CHANGELOG.md")
	data, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, after, ok := strings.Cut(string(data), unreleased)
	if changes, _, _ := strings.Cut(after, "\n## "); !ok || strings.TrimSpace(changes) == "" {
		return errors.New("CHANGELOG.md has no changes under Unreleased")
	}
	heading := "\n## " + strings.TrimPrefix(version, "v") + " - " +
		time.Now().UTC().Format(time.DateOnly) + "\n"
	return os.WriteFile(name, []byte(before+unreleased+heading+after), 0o644)
}

// check downloads every published module from the tags. The sums must be those of go.sum.
func (t *Tree) check(version string) (err error) {
	dir, err := os.MkdirTemp("", "weir-release-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, m := range t.Published() {
		out, err := command(dir, t.directEnv(dir), "go", "mod", "download", "-json", m.Path+"@"+version)
		if err != nil {
			return err
		}
		var got struct{ Sum, GoModSum string }
		if err := json.Unmarshal(out, &got); err != nil {
			return err
		}
		for _, user := range t.Published() {
			if !t.requiredBy(user)[m.Path] {
				continue
			}
			_, own, err := t.readSums(user)
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

// directEnv is the environment of a go command that takes the project's modules from t's own git
// repository, as if it were the public one.
func (t *Tree) directEnv(cache string) []string {
	return []string{
		"GOWORK=off", "GOFLAGS=-modcacherw -trimpath", "GOMODCACHE=" + cache,
		// taken from the repository, and not looked up in the sum database
		"GOPRIVATE=github.com/weirgo/weir",
		"GIT_CONFIG_COUNT=1",
		"GIT_CONFIG_KEY_0=url." + fileURL(t.Dir) + ".insteadOf", "GIT_CONFIG_VALUE_0=" + repository,
	}
}

func (t *Tree) git(args ...string) (string, error) {
	out, err := command(t.Dir, nil, "git", args...)
	return strings.TrimSpace(string(out)), err
}
