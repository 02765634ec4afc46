package ocispec

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
)

func (c *compiler) process() error {
	in, p := c.in, c.spec.Process
	args, err := args(in)
	if err != nil {
		return err
	}
	p.Args = args
	p.Terminal = in.Container.GetTty()
	if p.Env, err = environment(in); err != nil {
		return err
	}
	p.Cwd = path.Join("/", cmp.Or(in.Container.GetWorkingDir(), in.Image.WorkingDir))
	p.NoNewPrivileges = in.security().GetNoNewPrivs()
	p.User = specs.User{UID: in.User.UID, GID: in.User.GID, AdditionalGids: slices.Clone(in.User.Groups)}
	if r := in.linux().GetResources(); r != nil {
		score := r.GetOomScoreAdj()
		if score < -1000 || score > 1000 {
			return invalid("linux.resources.oom_score_adj", score, "must be from -1000 to 1000")
		}
		p.OOMScoreAdj = new(int(max(score, in.Machine.LeastOOMScoreAdj)))
	}
	return nil
}

// args returns the arguments of the process. By the rules of the CRI, a command of the
// container replaces the image's entrypoint and arguments. If the container has only
// arguments, these replace the image's arguments.
func args(in *Input) ([]string, error) {
	command, arguments := in.Container.GetCommand(), in.Container.GetArgs()
	if len(command) == 0 {
		command = in.Image.Entrypoint
		if len(arguments) == 0 {
			arguments = in.Image.Cmd
		}
	}
	all := slices.Concat(command, arguments)
	if len(all) == 0 || all[0] == "" {
		return nil, invalid("command", "", "neither the container nor its image says which program to run")
	}
	for _, a := range all {
		if strings.ContainsRune(a, 0) {
			return nil, invalid("args", a, "must not contain NUL")
		}
	}
	return all, nil
}

// defaultPath is the PATH of a container if its image sets none.
const defaultPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// environment merges the variables of the image and of the container. A later value replaces an
// earlier one of the same name, and stands at the earlier one's position. execve(2) cannot pass
// a NUL. So a NUL in a variable of the container is an error, and a variable of the image with
// a NUL is omitted, since the pod's author cannot change it.
func environment(in *Input) ([]string, error) {
	env := []string{defaultPath}
	if in.Container.GetTty() {
		env = append(env, "TERM=xterm")
	}
	if in.Hostname != "" {
		env = append(env, "HOSTNAME="+in.Hostname)
	}
	at := map[string]int{}
	for i, e := range env {
		name, _, _ := strings.Cut(e, "=")
		at[name] = i
	}
	set := func(name, value string) {
		if name == "" || strings.ContainsRune(name, 0) || strings.ContainsRune(value, 0) {
			return
		}
		if i, ok := at[name]; ok {
			env[i] = name + "=" + value
			return
		}
		at[name] = len(env)
		env = append(env, name+"="+value)
	}
	for _, e := range in.Image.Env {
		if name, value, ok := strings.Cut(e, "="); ok {
			set(name, value)
		}
	}
	for i, e := range in.Container.GetEnvs() {
		if strings.ContainsRune(e.GetKey(), 0) || bytes.ContainsRune(e.GetValue(), 0) {
			return nil, invalid(fmt.Sprintf("envs[%d]", i), e.GetKey(), "must not have a NUL in its name or value")
		}
		set(e.GetKey(), string(e.GetValue()))
	}
	return env, nil
}
