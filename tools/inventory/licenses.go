package main

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// licenseName matches the names of files that have a licence, a notice that a licence requires to
	// be kept, or a grant of patents.
	licenseName = regexp.MustCompile(
		`(?i)^(([a-z0-9.]+[-_.])?(un)?licen[cs]es?|copying|copyright|notices?|patents)([-_.][a-z0-9._-]*)?$`)

	// code matches files with such a name that are programs or data.
	code = regexp.MustCompile(`(?i)\.(go|js|json|css|html|proto|py|sh|tmpl|tpl|csv|ya?ml)$`)
)

// licenseFiles returns the names of the files with licences in the directory of a module, also
// below it, where a module has code of others.
func licenseFiles(m module) (names []string, err error) {
	err = filepath.WalkDir(m.dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		switch {
		case path == m.dir:
		case !e.IsDir():
			folder := filepath.Base(filepath.Dir(path))
			isLicense := licenseName.MatchString(name) || strings.EqualFold(folder, "licenses")
			if !code.MatchString(name) && isLicense {
				names = append(names, path)
			}
		// What the go command compiles nothing of; and the project and Go have one licence at the top.
		case name == "testdata", name[0] == '_', name[0] == '.', m.own(), m.path == stdlib:
			return fs.SkipDir
		}
		return nil
	})
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s@%s has no licence in %s", m.path, m.version, m.dir)
	}
	return names, err
}

// licensesOf returns the licences of modules. A text that several have stands once.
func licensesOf(modules []module) ([]byte, error) {
	var texts []string             // in the order of the modules
	where := map[string][]string{} // the modules and files that have a text
	for _, m := range modules {
		files, err := licenseFiles(m)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			name, err := filepath.Rel(m.dir, file)
			if err != nil {
				return nil, err
			}
			text := strings.TrimSpace(strings.ReplaceAll(string(data), "\r\n", "\n"))
			if where[text] == nil {
				texts = append(texts, text)
			}
			where[text] = append(where[text],
				strings.TrimSpace(m.path+" "+m.version)+": "+filepath.ToSlash(name))
		}
	}
	var b bytes.Buffer
	b.WriteString("The licences of the programs and of all that is linked into them.\n")
	for _, text := range texts {
		fmt.Fprintf(&b, "\n%s\n\n", strings.Repeat("=", 80))
		for _, line := range slices.Compact(where[text]) {
			fmt.Fprintln(&b, line)
		}
		fmt.Fprintf(&b, "\n%s\n", text)
	}
	return b.Bytes(), nil
}
