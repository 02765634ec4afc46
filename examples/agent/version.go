package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/nodewright/nodewright/nodeagent"
)

// versionFlag is the kubelet's flag --version. Without a value it prints the Kubernetes release, with
// =raw the release and build details. With =RELEASE it sets the release that the agent reports.
type versionFlag string

func (v *versionFlag) String() string { return string(*v) }

// IsBoolFlag makes the value of the flag optional.
func (v *versionFlag) IsBoolFlag() bool { return true }

// Set implements flag.Value.
func (v *versionFlag) Set(s string) error {
	if s == "raw" {
		*v = "raw"
		return nil
	}
	if is, err := strconv.ParseBool(s); err == nil {
		*v = ""
		if is {
			*v = "true"
		}
		return nil
	}
	if _, err := nodeagent.VersionInfo(s); err != nil {
		return fmt.Errorf("true, raw or a release; %w", err)
	}
	*v = versionFlag(s)
	return nil
}

// asked reports whether --version was given to print the version.
func (v *versionFlag) asked() bool { return *v == "true" || *v == "raw" }

// release returns the Kubernetes release that the agent reports.
func (v *versionFlag) release() string {
	if *v == "" || v.asked() {
		return nodeagent.KubernetesVersion()
	}
	return string(*v)
}

// print writes the version in the form that programs such as kubeadm parse: "Kubernetes" and
// the release. With =raw it writes all build details.
func (v *versionFlag) print(w io.Writer) error {
	info, err := nodeagent.VersionInfo(v.release())
	if err != nil {
		return fmt.Errorf("this program was linked with an invalid version: %w", err)
	}
	if *v == "raw" {
		_, err = fmt.Fprintf(w, "%#v\n", info)
	} else {
		_, err = fmt.Fprintln(w, "Kubernetes "+info.GitVersion)
	}
	return err
}

// newVersion returns the command that prints the version of the agent.
func newVersion(std stdio) *cobra.Command {
	return &cobra.Command{
		Use: "version", Short: "Print the version", Args: noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		Example: "  agent version",
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprintf(std.out, "%s %s, as Kubernetes %s\n", cmd.Root().Name(), versionString(), nodeagent.KubernetesVersion())
			return err
		},
	}
}

func versionString() string {
	v := "unknown"
	if info, ok := debug.ReadBuildInfo(); ok {
		v = info.Main.Version
	}
	return v + " " + runtime.Version() + " " + runtime.GOOS + "/" + runtime.GOARCH
}
