/* man.c - man pages from the tables of commands and options. */
#include <ctype.h>
#include <string.h>

#include <lockstep/version.h>

#include "cli/commands/pages.h"

enum { TEXT_BYTES = 1024 };

/* Writes text without a meaning to roff. Quotes and dashes stay as they are typed. */
static void put_text(FILE *out, const char *text)
{
    static const struct {
        char from;
        const char *to;
    } signs[] = {{'\\', "\\e"}, {'-', "\\-"}, {'\'', "\\(aq"}, {'`', "\\(ga"}, {'^', "\\(ha"}, {'~', "\\(ti"}};
    if (*text == '.')
        fputs("\\&", out);
    for (; *text; text++) {
        const char *to = NULL;
        for (size_t i = 0; i < sizeof signs / sizeof *signs; i++)
            to = signs[i].from == *text ? signs[i].to : to;
        if (to)
            fputs(to, out);
        else
            fputc(*text, out);
    }
}

static void put_line(FILE *out, const char *text)
{
    put_text(out, text);
    fputc('\n', out);
}

static void put_head(FILE *out, const char *name, const char *summary)
{
    fprintf(out, ".\\\" Written by 'lockstep help --man'.\n.TH \"");
    for (const char *at = name; *at; at++)
        if (*at == '-')
            fputs("\\-", out);
        else
            fputc(toupper((unsigned char)*at), out);
    fprintf(out, "\" 1 \"\" \"lockstep %s\" \"User Commands\"\n.SH NAME\n", LK_VERSION);
    put_text(out, name);
    fprintf(out, " \\- ");
    put_line(out, summary);
}

/* Writes lines of text; those that begin with a blank are examples. */
static void put_about(FILE *out, const char *about)
{
    bool example = false;
    while (*about) {
        char line[TEXT_BYTES];
        size_t length = strcspn(about, "\n");
        snprintf(line, sizeof line, "%.*s", (int)length, about);
        about += length + (about[length] == '\n');
        if (example != (*line == ' ')) {
            fprintf(out, example ? ".EE\n.PP\n" : ".PP\n.EX\n");
            example = !example;
        }
        put_line(out, line + strspn(line, " "));
    }
    if (example)
        fprintf(out, ".EE\n");
}

static void put_option(FILE *out, const lk_options_set *set, const lk_option *row)
{
    char name[64], help[TEXT_BYTES];
    const char *arg = lk__options_value_name(row, name, sizeof name);
    bool optional = row->kind == LK_OPTION_KIND_OPTIONAL;
    fprintf(out, ".TP\n");
    if (row->letter)
        fprintf(out, "\\fB\\-%c\\fR, ", row->letter);
    fprintf(out, "\\fB\\-\\-");
    put_text(out, row->name);
    fprintf(out, "\\fR");
    if (arg) {
        fprintf(out, optional ? " [\\fI" : " \\fI");
        put_text(out, arg);
        fprintf(out, optional ? "\\fR]" : "\\fR");
    }
    fputc('\n', out);
    put_text(out, lk__options_spell(set, NULL, row->help, help, sizeof help));
    if (row->initial && row->kind != LK_OPTION_KIND_ALIAS) {
        fprintf(out, " (default ");
        put_text(out, row->initial);
        fputc(')', out);
    }
    fputc('\n', out);
}

static void put_options(FILE *out, const lk_options_set *set)
{
    const char *group = "";
    fprintf(out, ".SH OPTIONS\n");
    for (size_t i = 0; i < set->count; i++) {
        if (!(set->rows[i].commands & set->commands))
            continue;
        if (strcmp(group, set->rows[i].group) != 0) {
            group = set->rows[i].group;
            fprintf(out, ".SS %c", toupper((unsigned char)*group));
            put_line(out, group + 1);
        }
        put_option(out, set, &set->rows[i]);
    }
}

/* Whether the row is a word of this command: with `meant`, one that is taken for an option, else one that is refused.
 */
static bool is_listed(const lk_options_set *set, const lk_options_foreign *row, bool meant)
{
    const char *fixed;
    if (!(row->commands & set->commands) || !*row->word || row->beside)
        return false;
    return meant == (lk__options_foreign_option(set, row, &fixed) || lk__options_foreign_is_key(set, row));
}

/* "--model", "--precision bf16", "the parameter momentum of --optimizer". */
static void put_meaning(FILE *out, const char *means)
{
    char text[TEXT_BYTES];
    int length = (int)strcspn(means, "=:");
    const char *rest = means[length] ? means + length + 1 : "";
    if (means[length] == ':')
        snprintf(text, sizeof text, "the parameter %s of --%.*s", rest, length, means);
    else
        snprintf(text, sizeof text, "the same as --%.*s%s%s", length, means, *rest ? " " : "", rest);
    put_line(out, text);
}

static void put_foreign(FILE *out, const lk_options_set *set)
{
    const char *title = ".SH OPTIONS OF OTHER PROGRAMS\nWords of PyTorch\\(aqs scripts and of launchers.\n", *sign = "";
    for (const lk_options_foreign *row = set->foreign; row && row->word; row++) {
        if (!is_listed(set, row, true))
            continue;
        fprintf(out, "%s.TP\n\\fB", title);
        put_text(out, row->word);
        fprintf(out, "\\fR\n");
        put_meaning(out, row->means);
        title = "";
    }
    for (const lk_options_foreign *row = set->foreign; row && row->word; row++) {
        if (!is_listed(set, row, false))
            continue;
        fprintf(out, *sign ? "%s%s" : "%s.PP\nThese are answered with the line to write:\n%s", title, sign);
        put_text(out, row->word);
        title = "", sign = ",\n";
    }
    fprintf(out, *sign ? ".\n" : "");
}

static void put_status(FILE *out)
{
    fprintf(out, ".SH EXIT STATUS\n"
                 ".TP\n0\ndone\n"
                 ".TP\n1\nthe job failed, or what was compared differs\n"
                 ".TP\n2\nthe command line must be changed; the message says how\n");
}

/* The other pages; `but` is left out. */
static void put_see_also(FILE *out, const lk_command *but)
{
    const lk_command *command;
    const char *sign = "";
    fprintf(out, ".SH SEE ALSO\n");
    if (but) {
        fprintf(out, "\\fBlockstep\\fR(1)");
        sign = ",\n";
    }
    for (size_t i = 0; (command = lk__command_list(i)); i++) {
        if (command == but)
            continue;
        fprintf(out, "%s\\fBlockstep\\-%s\\fR(1)", sign, command->name);
        sign = ",\n";
    }
    fputc('\n', out);
}

static void put_commands(FILE *out)
{
    const lk_command *command;
    fprintf(out, ".SH COMMANDS\n");
    for (size_t i = 0; (command = lk__command_list(i)); i++) {
        fprintf(out, ".TP\n\\fBlockstep %s\\fR ", command->name);
        put_line(out, command->synopsis);
        put_line(out, command->summary);
    }
}

static void put_program(FILE *out)
{
    put_head(out, "lockstep", LK_COMMAND_PROGRAM_SUMMARY);
    fprintf(out, ".SH SYNOPSIS\n\\fBlockstep\\fR \\fICOMMAND\\fR [options]\n.SH DESCRIPTION\n");
    put_about(out, "Lockstep trains neural networks with one process or many, on one host or many.\n"
                   "However the work is divided, the weights are the same bits.\n"
                   "Each command has a page of its own, and 'lockstep help COMMAND' shows its options.");
    put_commands(out);
}

void lk__command_man(const lk_command *command, FILE *out)
{
    if (command) {
        lk_options_set set = lk__args_options(command->name, command->bit, command->max_words);
        char name[64];
        snprintf(name, sizeof name, "lockstep-%s", command->name);
        put_head(out, name, command->summary);
        fprintf(out, ".SH SYNOPSIS\n\\fBlockstep %s\\fR ", command->name);
        put_line(out, command->synopsis);
        fprintf(out, ".SH DESCRIPTION\n");
        put_about(out, *command->about ? command->about : command->summary);
        put_options(out, &set);
        put_foreign(out, &set);
    } else {
        put_program(out);
    }
    put_status(out);
    put_see_also(out, command);
}
