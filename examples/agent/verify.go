package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/spf13/cobra"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/nodewright/nodewright/bundle"
	"github.com/nodewright/nodewright/signature"
)

// newImagesVerify returns the command that verifies an image by a policy file, without an agent.
func newImagesVerify(std stdio) *cobra.Command {
	var policy, digest string
	cmd := &cobra.Command{
		Use: "verify IMAGE", Short: "Verify the signatures of an image or bundle by a policy file",
		Long:    "Verify the signatures of an image or bundle by a policy file, without pulling it, with the credentials of Docker's config.json. The registry is asked directly. No agent needs to run.",
		Example: "  agent images verify --signature-policy signatures.yaml registry.example/shop/web:1",
		Args:    cobra.ExactArgs(1), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			return verifyImage(cmd.Context(), std, policy, args[0], digest)
		},
	}
	cmd.Flags().StringVar(&policy, "signature-policy", "", "the policy `file`")
	cmd.Flags().StringVar(&digest, "digest", "", "the `digest` to verify; default: the one that the registry has for IMAGE")
	return cmd
}

func verifyImage(ctx context.Context, std stdio, file, image, digest string) error {
	if file == "" {
		return errors.New("--signature-policy: want the policy file")
	}
	// A rule with the mode warn logs.
	log := zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(zapcore.EncoderConfig{MessageKey: "message"}), zapcore.AddSync(std.err), zap.WarnLevel))
	policy, err := signature.Load(file, log)
	if err != nil {
		return err
	}
	ref, err := reference.ParseDockerRef(image)
	if err != nil {
		return fmt.Errorf("%.300q: want the name of an image: %w", image, err)
	}
	registry := bundle.Registry{Keychain: authn.DefaultKeychain}
	if digest == "" {
		if digest, err = registry.Resolve(ctx, ref.String()); err != nil {
			return err
		}
	}
	if err := policy.Verify(ctx, ref.String(), digest, func(ctx context.Context, kind, name string, limit int64) ([]byte, error) {
		return registry.Document(ctx, ref.String(), kind, name, limit)
	}); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "accepted %s@%s\n", ref.Name(), digest)
	return nil
}
