/* roster.c - the state of a job. */
#include "comm/control/roster.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/text.h"
#include "comm/control/wire.h"

typedef struct entry {
    lk_roster_presence presence;
    bool gave;
    int call_count;
    lk_call calls[LK_HISTORY];
} entry;

struct lk_roster {
    int size, here, joined;
    entry *entries;     /* (size) */
    lk_member *members; /* (size) */
    /* The current exchange. The parts of the previous one stay in the other half for ranks that read late. */
    uint32_t number;
    int given;
    size_t part_bytes;
    uint8_t *parts[2]; /* (size, LK_EXCHANGE_BYTES) of room */
    lk_status verdict;
    char text[LK_WIRE_TEXT + 1];
};

lk_status lk__roster_create(int size, lk_roster **out)
{
    lk_roster *roster;
    lk_status status;
    LK_TRY(LK_ALLOC(1, "the job's roster", &roster));
    roster->size = size;
    LK_TRY_GOTO(LK_ALLOC((size_t)size, "the job's roster", &roster->entries), destroy_roster);
    LK_TRY_GOTO(LK_ALLOC((size_t)size, "the job's members", &roster->members), destroy_roster);
    for (int half = 0; half < 2; half++)
        LK_TRY_GOTO(LK_ALLOC((size_t)size * LK_EXCHANGE_BYTES, "an exchange", &roster->parts[half]), destroy_roster);
    *out = roster;
    return LK_OK;

destroy_roster:
    lk__roster_destroy(roster);
    return status;
}

void lk__roster_destroy(lk_roster *roster)
{
    if (!roster)
        return;
    lk__mem_free(roster->entries);
    lk__mem_free(roster->members);
    lk__mem_free(roster->parts[0]);
    lk__mem_free(roster->parts[1]);
    lk__mem_free(roster);
}

__attribute__((format(printf, 3, 4))) static void break_job(lk_roster *roster, lk_status status, const char *format,
                                                            ...)
{
    if (roster->verdict != LK_OK)
        return;
    roster->verdict = status;
    va_list args;
    va_start(args, format);
    vsnprintf(roster->text, sizeof roster->text, format, args);
    va_end(args);
}

/* The detail is set already. Fails the job if it is not complete. */
static lk_status refuse(lk_roster *roster, lk_status status)
{
    if (!lk__roster_complete(roster))
        break_job(roster, status, "%s", lk_error_detail());
    return status;
}

static lk_status fail_twin(const lk_roster *roster, int rank, const lk_member *member)
{
    char first[LK_MEMBER_TEXT], second[LK_MEMBER_TEXT];
    return lk__fail(LK_STATUS_MISMATCH, "two processes came as the same rank: %s and %s; give each a rank of its own%s",
                    lk__member_text(rank, &roster->members[rank], first), lk__member_text(rank, member, second),
                    rank == 0 ? ", and each job a port of its own" : "");
}

lk_status lk__roster_join(lk_roster *roster, int rank, int size, const lk_member *member)
{
    char mine[LK_MEMBER_TEXT], theirs[LK_MEMBER_TEXT];
    if (roster->verdict != LK_OK)
        return lk__fail(roster->verdict, "%s", roster->text);
    /* The process found rank 0's port in use and asks who has it. It is refused without a verdict, because a process of
     * another job must not end this job. */
    if (rank == 0 && roster->entries[0].presence != LK_ROSTER_PRESENCE_MISSING)
        return fail_twin(roster, 0, member);
    if (size != roster->size) {
        /* Rank 0 has joined: the server runs there. */
        lk__member_text(0, &roster->members[0], theirs);
        return refuse(roster, lk__fail(LK_STATUS_MISMATCH,
                                       "%s was started for a world of %d, but %s for a world of %d: give all ranks "
                                       "the same world size, and all processes the same number of devices",
                                       lk__member_text(rank, member, mine), size, theirs, roster->size));
    }
    if (rank < 0 || rank >= size)
        return refuse(roster, lk__fail(LK_STATUS_USAGE, "%s is not a rank of a world of %d: ranks count from 0 to %d",
                                       lk__member_text(rank, member, mine), size, size - 1));
    if (roster->entries[rank].presence != LK_ROSTER_PRESENCE_MISSING)
        return refuse(roster, fail_twin(roster, rank, member));
    roster->entries[rank].presence = LK_ROSTER_PRESENCE_HERE;
    roster->members[rank] = *member;
    roster->here++;
    roster->joined++;
    return LK_OK;
}

bool lk__roster_complete(const lk_roster *roster)
{
    return roster->joined == roster->size;
}

const lk_member *lk__roster_members(const lk_roster *roster)
{
    return roster->members;
}

void lk__roster_set_address(lk_roster *roster, int rank, const char *address)
{
    snprintf(roster->members[rank].address, sizeof roster->members[rank].address, "%s", address);
}

static void depart(lk_roster *roster, int rank, lk_roster_presence how)
{
    roster->entries[rank].presence = how;
    roster->here--;
}

void lk__roster_leave(lk_roster *roster, int rank)
{
    char text[LK_MEMBER_TEXT];
    if (roster->entries[rank].presence != LK_ROSTER_PRESENCE_HERE)
        return;
    depart(roster, rank, LK_ROSTER_PRESENCE_LEFT);
    lk__member_text(rank, &roster->members[rank], text);
    if (!lk__roster_complete(roster))
        break_job(roster, LK_STATUS_PEER, "%s gave up before all ranks had joined", text);
    else if (roster->given > 0 && !roster->entries[rank].gave)
        break_job(roster, LK_STATUS_PEER, "%s left while other ranks were waiting for it", text);
}

void lk__roster_lose(lk_roster *roster, int rank, const char *how)
{
    char text[LK_MEMBER_TEXT];
    if (roster->entries[rank].presence != LK_ROSTER_PRESENCE_HERE)
        return;
    depart(roster, rank, LK_ROSTER_PRESENCE_LOST);
    lk__member_text(rank, &roster->members[rank], text);
    if (!lk__roster_complete(roster))
        break_job(roster, LK_STATUS_PEER, "%s %s before all ranks had joined", text, how);
    else if (roster->here > 0)
        break_job(roster, LK_STATUS_PEER, "%s %s", text, how);
}

void lk__roster_abort(lk_roster *roster, lk_status status, const char *text)
{
    break_job(roster, status == LK_OK ? LK_STATUS_PEER : status, "%s", text);
}

/* Returns the call of theirs with the group and number of `call`, or NULL. */
static const lk_call *counterpart(const entry *theirs, const lk_call *call)
{
    for (int i = 0; i < theirs->call_count; i++) {
        const lk_call *other = &theirs->calls[i];
        if (other->kind != LK_CALL_KIND_MESSAGE && other->group == call->group && other->number == call->number)
            return other;
    }
    return NULL;
}

/* Whether a and b disagree. The verdict names the first such call in a's order. */
static bool disagree(lk_roster *roster, int a, int b)
{
    const entry *mine = &roster->entries[a];
    for (int i = 0; i < mine->call_count; i++) {
        const lk_call *call = &mine->calls[i];
        const lk_call *other = call->kind == LK_CALL_KIND_MESSAGE ? NULL : counterpart(&roster->entries[b], call);
        if (!other || lk__call_same(call, other))
            continue;
        char first[LK_CALL_TEXT], second[LK_CALL_TEXT];
        break_job(roster, LK_STATUS_MISMATCH, "rank %d called %s, rank %d called %s", a, lk__call_text(call, first), b,
                  lk__call_text(other, second));
        return true;
    }
    return false;
}

void lk__roster_report(lk_roster *roster, int rank, const lk_call *calls, int count)
{
    entry *mine = &roster->entries[rank];
    mine->call_count = count < LK_HISTORY ? count : LK_HISTORY;
    if (mine->call_count > 0)
        memcpy(mine->calls, calls + (count - mine->call_count), (size_t)mine->call_count * sizeof *calls);
    for (int other = 0; other < roster->size; other++)
        if (other != rank && disagree(roster, other < rank ? other : rank, other < rank ? rank : other))
            return;
}

void lk__roster_absent(const lk_roster *roster, int rank, uint8_t *absent)
{
    const entry *mine = &roster->entries[rank];
    bool silent = false;
    for (int r = 0; r < roster->size; r++) {
        const entry *theirs = &roster->entries[r];
        absent[r] = r != rank && mine->call_count > 0 && theirs->presence == LK_ROSTER_PRESENCE_HERE &&
                    !counterpart(theirs, &mine->calls[mine->call_count - 1]);
        silent |= absent[r] && theirs->call_count == 0;
    }
    for (int r = 0; r < roster->size && silent; r++)
        absent[r] = absent[r] && roster->entries[r].call_count == 0;
}

/* Whether a part fits the current exchange. Fails the job if it does not. */
static bool part_fits(lk_roster *roster, int rank, uint32_t number, size_t bytes)
{
    char text[LK_MEMBER_TEXT];
    for (int r = 0; r < roster->size; r++)
        if (roster->entries[r].presence != LK_ROSTER_PRESENCE_HERE && !roster->entries[r].gave) {
            break_job(roster, LK_STATUS_PEER, "%s left while other ranks were waiting for it",
                      lk__member_text(r, &roster->members[r], text));
            return false;
        }
    if (!lk__roster_complete(roster) || number != roster->number || roster->entries[rank].gave)
        break_job(roster, LK_STATUS_PEER, "%s gave to exchange %u out of turn: do all ranks run the same version?",
                  lk__member_text(rank, &roster->members[rank], text), (unsigned)number);
    else if (bytes > LK_EXCHANGE_BYTES || (roster->given > 0 && bytes != roster->part_bytes))
        break_job(roster, LK_STATUS_MISMATCH,
                  "%s gave %zu bytes to exchange %u, the others %zu: have all the same `backend` and version?",
                  lk__member_text(rank, &roster->members[rank], text), bytes, (unsigned)number, roster->part_bytes);
    return roster->verdict == LK_OK;
}

bool lk__roster_give(lk_roster *roster, int rank, uint32_t number, const void *data, size_t bytes)
{
    if (roster->verdict != LK_OK || !part_fits(roster, rank, number, bytes))
        return false;
    roster->part_bytes = bytes;
    if (bytes)
        memcpy(roster->parts[number & 1] + (size_t)rank * bytes, data, bytes);
    roster->entries[rank].gave = true;
    if (++roster->given < roster->size)
        return false;
    roster->given = 0;
    roster->number++;
    for (int r = 0; r < roster->size; r++)
        roster->entries[r].gave = false;
    return true;
}

const uint8_t *lk__roster_parts(const lk_roster *roster, uint32_t number)
{
    return roster->parts[number & 1];
}

int lk__roster_awaited(const lk_roster *roster, uint8_t *awaited)
{
    int count = 0;
    bool complete = lk__roster_complete(roster);
    for (int r = 0; r < roster->size; r++) {
        const entry *at = &roster->entries[r];
        bool missing = complete ? roster->given > 0 && !at->gave : at->presence == LK_ROSTER_PRESENCE_MISSING;
        awaited[r] = missing;
        count += missing;
    }
    return count;
}

lk_status lk__roster_verdict(const lk_roster *roster, const char **text)
{
    *text = roster->text;
    return roster->verdict;
}

lk_roster_presence lk__roster_presence(const lk_roster *roster, int rank)
{
    return roster->entries[rank].presence;
}

int lk__roster_here(const lk_roster *roster)
{
    return roster->here;
}
