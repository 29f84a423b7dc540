package cli

import (
	"fmt"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/cubbyhq/cubby/client"
	"github.com/cubbyhq/cubby/internal/cli/format"
	"github.com/cubbyhq/cubby/internal/cli/values"
)

func (a *app) lsCommand() *cobra.Command {
	var labels []string
	var status, thread, tenant string
	var quiet, asJSON bool
	cmd := &cobra.Command{
		Use:     "ls [flags]",
		Aliases: []string{"list"},
		Short:   "list sandboxes",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o := client.ListOptions{Status: client.Status(status), Thread: thread, TenantID: tenant}
			var err error
			if o.Labels, err = values.Pairs("label", labels); err != nil {
				return usageError{cmd, err}
			}
			boxes := []client.Sandbox{}
			for box, err := range a.client().List(cmd.Context(), o) {
				if err != nil {
					return err
				}
				if quiet {
					fmt.Fprintln(a.Stdout, box.ID)
					continue
				}
				boxes = append(boxes, box)
			}
			switch {
			case quiet:
				return nil
			case asJSON:
				return format.JSON(a.Stdout, boxes)
			}
			return a.printBoxes(boxes)
		},
	}
	f := cmd.Flags()
	f.StringArrayVarP(&labels, "label", "l", nil, "only those with the label `KEY=VALUE`; repeatable")
	f.StringVar(&status, "status", "", "only those whose `status` is running, sleeping, stopped, failed, …")
	f.StringVar(&thread, "thread", "", "only those of the thread `name`")
	f.StringVar(&tenant, "tenant", "", "only those of the tenant `name`")
	f.BoolVarP(&quiet, "quiet", "q", false, "print ids only")
	jsonFlag(cmd, &asJSON)
	complete(cmd, "status", "creating", "running", "sleeping", "stopped", "failed")
	return cmd
}

func (a *app) printBoxes(boxes []client.Sandbox) error {
	if len(boxes) == 0 {
		a.note("no sandboxes")
		return nil
	}
	now := time.Now()
	rows, header := make([][]string, len(boxes)), []string{"ID", "STATUS", "ISOLATION", "IMAGE", "CREATED", "LAST ACTIVE", "LABELS"}
	for i, b := range boxes {
		rows[i] = []string{b.ID, string(b.Status), b.Isolation, b.Image, format.Age(b.CreatedAt, now), format.Age(b.LastActiveAt, now), labelText(b.Labels)}
	}
	if slices.ContainsFunc(boxes, func(b client.Sandbox) bool { return b.Reason != "" }) {
		header = append(header, "REASON")
		for i, b := range boxes {
			rows[i] = append(rows[i], shorten(b.Reason))
		}
	}
	return format.Table(a.Stdout, header, rows)
}

func labelText(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for k, v := range labels {
		list = append(list, k+"="+v)
	}
	sort.Strings(list)
	return strings.Join(list, ",")
}
