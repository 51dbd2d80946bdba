package servercmd

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.yaml.in/yaml/v4"

	"github.com/weirgo/weir/cmd/weir/internal/cli"
	"github.com/weirgo/weir/cmd/weir/internal/cli/rule"
	"github.com/weirgo/weir/cmd/weir/internal/serve/proxy"
	"github.com/weirgo/weir/rules"
)

// notInFiles are the flags that a file cannot set.
var notInFiles = []string{"help", "print-config"}

// configFile sets flags from a file in YAML: a map from their names to their values, or to lists of
// values if they may be given several times.
type configFile struct {
	name     string
	text     string
	flags    *pflag.FlagSet
	problems []error
	keys     map[string]*yaml.Node
	values   map[string]*yaml.Node // of the flags that the file set, not the command line
}

// readConfig sets the flags of cmd that a file names and the command line does not. Its error joins
// a rules.Problem for each mistake.
func readConfig(cmd *cobra.Command, name string) (*configFile, error) {
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	c := &configFile{name: name, text: string(text), flags: cmd.Flags(),
		keys: make(map[string]*yaml.Node), values: make(map[string]*yaml.Node)}
	switch top := c.document(text); {
	case top == nil:
	case top.Kind != yaml.MappingNode:
		c.problem(top, "want a map from the names of flags to their values")
	case hasKey(top, "descriptors"), hasKey(top, "rate_limits"): // domain is a setting, too
		c.problem(top, "these are rules, not settings: give --rules %s", name)
	default:
		for i := 0; i+1 < len(top.Content); i += 2 {
			c.set(top.Content[i], top.Content[i+1])
		}
	}
	return c, errors.Join(c.problems...)
}

// hasKey reports whether a map has a key.
func hasKey(n *yaml.Node, name string) bool {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return true
		}
	}
	return false
}

// located returns err, and each of several, as a rules.Problem, if a FlagError in it names a flag
// that the file set: at the value of the first flag that the file set, or at its name if it is
// wrong beside another flag.
func (c *configFile) located(err error) error {
	if all, ok := err.(interface{ Unwrap() []error }); ok {
		if each := all.Unwrap(); err.Error() == errors.Join(each...).Error() {
			for i := range each {
				each[i] = c.located(each[i])
			}
			return errors.Join(each...)
		}
	}
	e, ok := errors.AsType[*cli.FlagError](err)
	if !ok {
		return err
	}
	for _, flag := range e.Flags {
		at := c.values[flag]
		if at == nil {
			continue
		}
		if len(e.Flags) > 1 {
			at = c.keys[flag]
		} else if at.Kind == yaml.SequenceNode && e.Item < len(at.Content) {
			at = at.Content[e.Item]
		}
		c.problems = nil
		c.problem(at, "%s", cli.Text(err))
		return c.problems[0]
	}
	return err
}

// document returns the content of the only document, or nil if there is none.
func (c *configFile) document(data []byte) *yaml.Node {
	var docs []yaml.Node
	if err := yaml.Load(data, &docs, yaml.WithAllDocuments()); err != nil {
		at, text := &yaml.Node{Line: 1, Column: 1}, err.Error()
		if e, ok := errors.AsType[*yaml.LoadError](err); ok {
			text = e.Message // err repeats the place
			if e.Mark.Line > 0 {
				at.Line, at.Column = e.Mark.Line, e.Mark.Column
			}
		}
		if lines := bytes.Split(data, []byte("\n")); at.Line <= len(lines) &&
			bytes.HasPrefix(bytes.TrimLeft(lines[at.Line-1], " "), []byte("\t")) {
			text += "; the line is indented by a tab: YAML wants spaces"
		}
		c.problem(at, "%s", strings.TrimPrefix(text, "yaml: "))
		return nil
	}
	docs = slices.DeleteFunc(docs, func(doc yaml.Node) bool { return len(doc.Content) == 0 })
	switch {
	case len(docs) == 0:
		return nil
	case len(docs) > 1:
		c.problem(docs[1].Content[0], "a second document: settings are one")
		return nil
	}
	return docs[0].Content[0]
}

func (c *configFile) problem(at *yaml.Node, format string, args ...any) {
	c.problems = append(c.problems, &rules.Problem{
		File: c.name, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...),
	})
}

// set sets the flag of a key.
func (c *configFile) set(key, value *yaml.Node) {
	flag := c.flags.Lookup(key.Value)
	if flag == nil || slices.Contains(notInFiles, key.Value) {
		c.problem(key, "unknown setting %q%s", key.Value,
			cli.MeantFlag(c.flags, "", key.Value, notInFiles...))
		return
	}
	if before := c.keys[flag.Name]; before != nil {
		c.problem(key, "%s is set in line %d already", flag.Name, before.Line)
		return
	}
	c.keys[flag.Name] = key
	_, isList := flag.Value.(pflag.SliceValue)
	switch {
	case value.Kind == yaml.ScalarNode && value.Tag != "!!null":
		c.put(value, flag, []string{value.Value}, false)
	case value.Kind == yaml.SequenceNode && isList:
		c.setList(flag, value)
	case isList:
		c.problem(value, "%s: want a value or a list of values", flag.Name)
	case value.Kind == yaml.SequenceNode:
		c.problem(value, "%s: want one value, not a list", flag.Name)
	default:
		c.problem(value, "%s: want a value", flag.Name)
	}
}

func (c *configFile) setList(flag *pflag.Flag, list *yaml.Node) {
	var values []string
	for _, item := range list.Content {
		if item.Kind != yaml.ScalarNode || item.Tag == "!!null" {
			c.problem(item, "%s: want a value", flag.Name)
			return
		}
		values = append(values, item.Value)
	}
	c.put(list, flag, values, true)
}

// put is setFlag for the values at a node, unless the command line has set the flag, which wins.
func (c *configFile) put(at *yaml.Node, flag *pflag.Flag, values []string, list bool) {
	if flag.Changed {
		return
	}
	c.values[flag.Name] = at
	err := setFlag(flag, values, list)
	switch what := plain[flag.Value.Type()]; {
	case err != nil && what != "":
		c.problem(at, "%s: want %s, not %q", flag.Name, what, values[0])
	case err != nil:
		c.problem(at, "%s: %s", flag.Name, err)
	}
}

// setFlag sets a flag to a list of values, which may be empty, or to one as the command line does,
// which may cut it into several.
func setFlag(flag *pflag.Flag, values []string, list bool) (err error) {
	if list {
		err = flag.Value.(pflag.SliceValue).Replace(values)
	} else {
		err = flag.Value.Set(values[0])
	}
	flag.Changed = err == nil
	return err
}

// plain are the types of flags whose values YAML writes without quotes, and what is wanted of them.
var plain = map[string]string{
	"bool": "true or false", "int": "a whole number", "int64": "a whole number",
	"uint64": "a whole number that is not negative", "duration": "a duration such as 5s or 1m30s",
}

// printConfig prints the flags of cmd as a file that readConfig reads, those with their defaults as
// comments. notes are comments on flags.
func printConfig(w io.Writer, cmd *cobra.Command, notes map[string][]string) error {
	var out bytes.Buffer
	title := ""
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if slices.Contains(notInFiles, f.Name) {
			return
		}
		if of := cli.SectionOf(f); of != title {
			title = of
			fmt.Fprintf(&out, "\n# %s\n", title)
		}
		var value any = f.Value.String()
		if list, ok := f.Value.(pflag.SliceValue); ok {
			value = list.GetSlice()
		} else if what := plain[f.Value.Type()]; what != "" {
			value = &yaml.Node{Kind: yaml.ScalarNode, Value: f.Value.String()} // without quotes
		}
		text, err := yaml.Marshal(map[string]any{f.Name: value})
		if err != nil {
			panic(err) // cannot happen: these are texts
		}
		for _, note := range notes[f.Name] {
			out.WriteString("# " + note + "\n")
		}
		for line := range strings.Lines(string(text)) {
			if !f.Changed {
				line = "# " + line
			}
			out.WriteString(line)
		}
	})
	_, err := w.Write(bytes.TrimLeft(out.Bytes(), "\n"))
	return err
}

// notes says how each limit is counted, and what passes at once.
func notes(cfg *proxy.Config) map[string][]string {
	var limits, routes []string
	for _, l := range cfg.Limits {
		limits = append(limits, noteOf(l))
	}
	for _, r := range cfg.Routes {
		for _, l := range r.Limits {
			routes = append(routes, noteOf(l))
		}
	}
	return map[string][]string{"limit": limits, "route": routes}
}

func noteOf(l rule.Rule) string {
	return fmt.Sprintf("%s is counted in a %s, which admits %d at once", l.Limit,
		rule.Titles[l.Strategy], l.AtOnce())
}

// valuesOf returns how many values were given to flags.
func valuesOf(flags *pflag.FlagSet) (n int) {
	flags.VisitAll(func(flag *pflag.Flag) {
		switch several, ok := flag.Value.(pflag.SliceValue); {
		case !flag.Changed:
		case ok:
			n += len(several.GetSlice())
		default:
			n++
		}
	})
	return n
}

// copyFlag sets a flag to the value of another one.
func copyFlag(to, from *pflag.Flag) error {
	if several, ok := from.Value.(pflag.SliceValue); ok {
		return setFlag(to, several.GetSlice(), true)
	}
	return setFlag(to, []string{from.Value.String()}, false)
}
