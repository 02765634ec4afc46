package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/nodewright/nodewright/agent/local"
	"github.com/nodewright/nodewright/bundle"
	"github.com/nodewright/nodewright/nodeagent"
	nodebundle "github.com/nodewright/nodewright/nodeagent/bundle"
)

// onlyApplied is the value of --bundle for bundles that agent bundle apply brings.
const onlyApplied = "apply"

// runBundles adds bundles to the options, if a flag asks for it. The flags replace fields of c.
func runBundles(o *nodeagent.Options, f *runFlags, c nodebundle.Config) {
	c.Ref, c.Interval = f.bundle, f.bundleInterval
	switch f.bundle {
	case "":
		return
	case onlyApplied:
		c.Ref = ""
	}
	nodebundle.Attach(o, c)
}

// newBundle returns the commands about bundles.
func newBundle(std stdio) *cobra.Command {
	cmd := &cobra.Command{
		Use: "bundle", Short: "Build, push, apply and roll back bundles: all manifests of a node as one artifact",
		Example: "  agent bundle build manifests/ -o shop.tar\n  agent bundle push shop.tar registry.example/fleet/shop:prod\n  agent bundle apply shop.tar\n  agent bundle status\n  agent bundle rollback",
		Args:    knownCommand,
		RunE:    func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newBundleBuild(std), newBundlePush(std), newBundleApply(std), newBundleStatus(std), newBundleRollback(std))
	return cmd
}

func newBundleBuild(std stdio) *cobra.Command {
	var (
		output                  string
		healthyWithin, readyFor time.Duration
		percent                 int
	)
	cmd := &cobra.Command{
		Use: "build DIR", Short: "Make a bundle of the manifests in a directory",
		Long:    "Make a bundle of the manifests in a directory, as an OCI archive. The same manifests and flags make the same bundle.",
		Example: "  agent bundle build manifests/ -o shop.tar\n  agent bundle build manifests/ -o shop.tar --percent 10 --healthy-within 2m",
		Args:    cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if output == "" {
				return errors.New("-o: want the file to write")
			}
			files, err := bundle.ReadDir(args[0])
			if err != nil {
				return err
			}
			b, err := bundle.Build(files, bundle.Rollout{HealthyWithin: metav1.Duration{Duration: healthyWithin}, ReadyFor: metav1.Duration{Duration: readyFor}, Percent: percent})
			if err != nil {
				return err
			}
			archive, err := b.Archive()
			if err != nil {
				return err
			}
			if err := os.WriteFile(output, archive, 0o644); err != nil { //nolint:gosec // has no secrets
				return err
			}
			fmt.Fprintf(std.out, "built %s: %s, %s\n", b.Digest, counted(len(files), "manifest"), humanBytes(int64(len(archive))))
			return nil
		},
	}
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `file` to write")
	cmd.Flags().DurationVar(&healthyWithin, "healthy-within", bundle.DefaultHealthyWithin, "the `duration` within which all pods have to be ready; otherwise the last good bundle comes back")
	cmd.Flags().DurationVar(&readyFor, "ready-for", 0, "the `duration` for which all pods have to stay ready; 10s, at most --healthy-within")
	cmd.Flags().IntVar(&percent, "percent", 100, "the part of the nodes that take the bundle, by the hash of their names, in `percent`")
	return cmd
}

func newBundlePush(std stdio) *cobra.Command {
	return &cobra.Command{
		Use: "push FILE REF", Short: "Upload a bundle to a registry, with the credentials of Docker's config.json",
		Example: "  agent bundle push shop.tar registry.example/fleet/shop:prod",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			b, err := bundle.Open(args[0])
			if err != nil {
				return err
			}
			if err := (bundle.Registry{Keychain: authn.DefaultKeychain}).Push(cmd.Context(), args[1], b); err != nil {
				return fmt.Errorf("push %s: %w", args[1], err)
			}
			fmt.Fprintf(std.out, "pushed %s to %s\n", b.Digest, args[1])
			return nil
		},
	}
}

func newBundleApply(std stdio) *cobra.Command {
	var (
		c    clientFlags
		wait bool
	)
	cmd := &cobra.Command{
		Use: "apply FILE|REF", Short: "Put a bundle of a file, an OCI layout or a registry into effect on this node",
		Example: "  agent bundle apply /media/stick/shop.tar --wait\n  agent bundle apply registry.example/fleet/shop:next",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cl := cmd.Context(), c.client()
			digest, err := applyBundle(ctx, cl, args[0])
			if err != nil {
				return noBundles(err)
			}
			fmt.Fprintf(std.out, "applied %s\n", digest)
			if !wait {
				return nil
			}
			return awaitBundle(ctx, std, cl, digest)
		},
	}
	c.register(cmd)
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the bundle is good or rejected, and fail if it is rejected")
	return cmd
}

// applyBundle applies the file, directory or reference that a user has named.
func applyBundle(ctx context.Context, cl *local.Client, name string) (string, error) {
	if _, err := os.Stat(name); errors.Is(err, os.ErrNotExist) && !strings.HasPrefix(name, "/") && !strings.HasPrefix(name, ".") {
		return nodebundle.ApplyRef(ctx, cl, name)
	}
	b, err := bundle.Open(name)
	if err != nil {
		return "", err
	}
	return b.Digest, nodebundle.Apply(ctx, cl, b)
}

// noBundles explains the answer of an agent that runs no bundles.
func noBundles(err error) error {
	if errors.Is(err, local.ErrNotFound) {
		return errors.New("this agent runs no bundles; start it with --bundle")
	}
	return err
}

// awaitBundle prints what a bundle waits for until it is good. It returns an error if the bundle is
// rejected.
func awaitBundle(ctx context.Context, std stdio, cl *local.Client, digest string) error {
	for said := ""; ; {
		s, err := nodebundle.Status(ctx, cl)
		switch {
		case err != nil:
			return err
		case s.Next == nil && s.Good == digest:
			fmt.Fprintln(std.out, "good "+digest)
			return nil
		case s.Next == nil || s.Next.Digest != digest:
			if s.Rejected != nil && s.Rejected.Digest == digest {
				return fmt.Errorf("bundle %s was rejected: %s", digest, oneLine(s.Rejected.Reason))
			}
			return fmt.Errorf("bundle %s was replaced by another one", digest)
		case s.Waits != said && s.Waits != "":
			said = s.Waits
			fmt.Fprintln(std.err, oneLine(said))
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func newBundleStatus(std stdio) *cobra.Command {
	var (
		c      clientFlags
		output string
	)
	cmd := &cobra.Command{
		Use: "status", Short: "Show which bundle runs, which comes next, and why one was rejected",
		Example: "  agent bundle status\n  agent bundle status -o json",
		Args:    noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := nodebundle.Status(cmd.Context(), c.client())
			if err != nil {
				return noBundles(err)
			}
			switch output {
			case "json":
				enc := json.NewEncoder(std.out)
				enc.SetIndent("", "  ")
				return enc.Encode(s)
			case "":
				return writeBundles(std.out, s, time.Now())
			}
			return fmt.Errorf("-o %q: want json", output)
		},
	}
	c.register(cmd)
	cmd.Flags().StringVarP(&output, "output", "o", "", "the `format`: json")
	completeFlag(cmd, "output", oneOf("json"))
	return cmd
}

// writeBundles prints a status for people.
func writeBundles(out io.Writer, s bundle.Status, now time.Time) error {
	w := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	line := func(name string, values ...string) { fmt.Fprintln(w, name+"\t"+strings.Join(values, "\t")) }
	ago := func(t time.Time) string { return duration.HumanDuration(now.Sub(t)) + " ago" }
	orNone := func(s string) string {
		if s == "" {
			return "none"
		}
		return s
	}
	line("Runs", orNone(s.Running()))
	line("Good", orNone(s.Good))
	line("Before", orNone(s.Before))
	if n := s.Next; n != nil {
		state := fmt.Sprintf("on trial, start %d of %d", n.Trials, bundle.MaxTrials)
		if n.Trials == 0 {
			state = "pulling images"
		}
		line("Next", n.Digest, state, oneLine(s.Waits))
	}
	if r := s.Rejected; r != nil {
		line("Rejected", r.Digest, ago(r.Time), oneLine(r.Reason))
	}
	if s.Ref != "" {
		polled := "not polled yet"
		if !s.Polled.IsZero() {
			polled = "polled " + ago(s.Polled)
		}
		line("Tag", s.Ref, polled, oneLine(s.PollError))
	}
	line("Place", fmt.Sprintf("%d: takes bundles for more than %d %% of the nodes", s.Place, s.Place))
	return w.Flush()
}

func newBundleRollback(std stdio) *cobra.Command {
	var c clientFlags
	cmd := &cobra.Command{
		Use: "rollback", Short: "End a bundle's trial, or bring back the bundle that was good before",
		Example: "  agent bundle rollback",
		Args:    noArguments, ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := nodebundle.Rollback(cmd.Context(), c.client())
			if err != nil {
				return noBundles(err)
			}
			if s.Running() == "" {
				fmt.Fprintln(std.out, "rolled back; no bundle runs")
				return nil
			}
			fmt.Fprintln(std.out, "rolled back to "+s.Running())
			return nil
		},
	}
	c.register(cmd)
	return cmd
}
